package ringkeeper;

import java.util.List;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Skips the methods that the property names. */
public class Excluded implements ExecutionCondition {

    private static final List<String> NAMES = List.of(System.getProperty("tests.excluded", "").split(","));

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        boolean excluded = context.getTestMethod().map(method -> NAMES.contains(method.getName())).orElse(false);
        return excluded ? ConditionEvaluationResult.disabled("is excluded") : ConditionEvaluationResult.enabled("");
    }
}
