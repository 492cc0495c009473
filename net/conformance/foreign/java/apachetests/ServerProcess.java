package ringkeeper;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A process of the server under test. It gets the properties that a test has set for its server as options,
 * and ends with the test's own process.
 */
public final class ServerProcess {

    /** Properties that choose classes of Java's server or client. */
    private static final List<String> CLIENTS_OWN = List.of(
            "zookeeper.clientCnxnSocket", "zookeeper.serverCnxnFactory", "zookeeper.jmx.log4j.disable");

    private static final String JAAS_FILE = "java.security.auth.login.config";
    private static final long STOP_SECONDS = 30;

    private final List<String> command;
    private final int adminPort;
    private Process process;

    /**
     * A server with these arguments and settings, whose admin listener has this port, or no such listener for
     * 0.
     */
    public ServerProcess(List<String> arguments, Map<String, String> settings, int adminPort) throws IOException {
        this.adminPort = adminPort;
        command = new ArrayList<>(List.of(System.getProperty("tests.binary"), "server"));
        command.addAll(arguments);
        var options = new TreeMap<>(settings);
        options.putAll(properties());
        options.keySet().removeIf(name -> name.startsWith("admin."));
        options.put("admin.enableServer", Boolean.toString(adminPort != 0));
        // In KiB. Many servers are started.
        options.put("preAllocSize", "100");
        if (adminPort != 0) {
            options.put("admin.serverPort", Integer.toString(adminPort));
        }
        for (var option : options.entrySet()) {
            command.add("--option");
            command.add(option.getKey() + "=" + option.getValue());
        }
    }

    /** What the test has set for its server. */
    private static Map<String, String> properties() throws IOException {
        var options = new TreeMap<String, String>();
        for (String name : System.getProperties().stringPropertyNames()) {
            if (name.startsWith("zookeeper.") && !CLIENTS_OWN.contains(name)) {
                options.put(name.substring("zookeeper.".length()), System.getProperty(name));
            }
        }
        String readOnly = System.getProperty("readonlymode.enabled");
        if (readOnly != null) {
            options.put("readonlymode.enabled", readOnly);
        }
        String jaasFile = System.getProperty(JAAS_FILE);
        if (jaasFile != null) {
            // Passwords are read from files that nobody else can read.
            Files.setPosixFilePermissions(Path.of(jaasFile), PosixFilePermissions.fromString("rw-------"));
            options.put(JAAS_FILE, jaasFile);
        }
        // Classes cannot be loaded: schemes of tests' own stay unknown.
        options.put("ringkeeper.ignoreUnsupported", System.getProperty("tests.ignored", ""));
        return options;
    }

    public synchronized void start() throws IOException {
        process = new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(new File(System.getProperty("tests.log")))).start();
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
    }

    public synchronized boolean runs() {
        return process != null && process.isAlive();
    }

    /** Ends it in order; whether that took no longer than it may. */
    public synchronized boolean stop() throws InterruptedException {
        if (process == null) {
            return true;
        }
        process.destroy();
        boolean ended = process.waitFor(STOP_SECONDS, TimeUnit.SECONDS);
        process.destroyForcibly();
        return ended;
    }

    /** Waits until it has ended by itself. */
    public void waitFor() throws InterruptedException {
        process.waitFor();
    }

    /** Sends it a signal, such as `STOP`. */
    public void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).inheritIO().start().waitFor();
        } catch (IOException | InterruptedException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** What it answers to a command of the AdminServer, or nothing if it does not listen. */
    public String ask(String name) {
        try {
            var connection = (HttpURLConnection) new URL("http://127.0.0.1:" + adminPort + "/commands/" + name)
                    .openConnection();
            connection.setConnectTimeout(2000);
            connection.setReadTimeout(2000);
            try (InputStream answer = connection.getInputStream()) {
                var bytes = new ByteArrayOutputStream();
                answer.transferTo(bytes);
                return bytes.toString(StandardCharsets.UTF_8);
            }
        } catch (IOException refused) {
            return "";
        }
    }

    /** The value of a field in such an answer, as it is written there, or null. */
    public static String field(String answer, String name) {
        Matcher found = Pattern.compile('"' + name + "\": \"?([^\",\\n]*)").matcher(answer);
        return found.find() ? found.group(1) : null;
    }
}
