package ringkeeper;

import java.lang.reflect.Method;
import java.util.List;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Skips the methods that the property names: all runs of `name`, or the n-th one alone by `name[n]`. */
public class Excluded implements ExecutionCondition {

    private static final List<String> NAMES = List.of(System.getProperty("tests.excluded", "").split(","));

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        String run = context.getDisplayName().replaceFirst("^(\\[\\d+\\])?.*", "$1");
        boolean excluded = context.getTestMethod().map(Method::getName)
                .filter(name -> NAMES.contains(name) || NAMES.contains(name + run)).isPresent();
        return excluded ? ConditionEvaluationResult.disabled("is excluded") : ConditionEvaluationResult.enabled("");
    }
}
