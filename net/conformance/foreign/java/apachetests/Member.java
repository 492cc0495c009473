package org.apache.zookeeper.server.quorum;

import java.io.File;
import java.io.IOException;
import java.io.StringReader;
import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import javax.security.sasl.SaslException;
import org.apache.zookeeper.PortAssignment;
import org.apache.zookeeper.client.FourLetterWordMain;
import org.apache.zookeeper.server.quorum.flexible.QuorumVerifier;
import ringkeeper.ServerProcess;
import sun.misc.Unsafe;

/**
 * A member of an ensemble as Apache ZooKeeper's tests see it, which is a process. What the tests ask is asked
 * of the process, by its admin listener.
 */
public class Member extends QuorumPeer {

    private static final long REFRESH_MS = 100;
    private static final long SETTLED_MS = 5_000;
    private static final Unsafe UNSAFE = unsafe();

    private final File config;
    private final String members;
    private ServerProcess process;
    private volatile ServerState state = ServerState.LOOKING;
    private volatile boolean suspended;
    private volatile String clientAddress;

    /** The server of this configuration file, which names these members. */
    public Member(long id, File config, String members) throws SaslException {
        this.config = config;
        this.members = members;
        setMyid(id);
        Matcher line = Pattern.compile("(?m)^server\\." + id + "=[^;\\n]*;(\\S+)").matcher(members);
        clientAddress = line.find() ? line.group(1) : null;
    }

    /** Where it serves clients, unless its line tells. */
    public void setClientPort(int port) {
        clientAddress = Integer.toString(port);
    }

    @Override
    public synchronized void start() {
        try {
            process = new ServerProcess(List.of("--config", config.getPath(), "--client-address", "127.0.0.1"),
                    Map.of("4lw.commands.whitelist", "*",
                           "reconfigEnabled", Boolean.toString(isReconfigEnabled()),
                           "standaloneEnabled", Boolean.toString(QuorumPeerConfig.isStandaloneEnabled())),
                    PortAssignment.unique());
            process.start();
        } catch (IOException failure) {
            throw new IllegalStateException(failure);
        }
        ServerProcess started = process;
        Thread watch = new Thread(() -> {
            while (started.runs()) {
                refresh();
                try {
                    TimeUnit.MILLISECONDS.sleep(REFRESH_MS);
                } catch (InterruptedException end) {
                    return;
                }
            }
        });
        watch.setDaemon(true);
        watch.start();
    }

    @Override
    public void shutdown() {
        ServerProcess running = process;
        if (running == null) {
            return;
        }
        setSuspended(false);
        try {
            if (!running.stop()) {
                throw new IllegalStateException("the server does not end");
            }
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
        refresh();
    }

    public boolean runs() {
        return process != null && process.runs();
    }

    public ServerProcess process() {
        return process;
    }

    /** Asks the process for its state. The tests look into fields to learn it. */
    public synchronized void refresh() {
        if (suspended) {
            return;
        }
        String stats = runs() ? process.ask("server_stats") : "";
        String named = String.valueOf(ServerProcess.field(stats, "server_state"));
        state = switch (named) {
            case "leader" -> ServerState.LEADING;
            case "follower" -> ServerState.FOLLOWING;
            case "observer" -> ServerState.OBSERVING;
            default -> ServerState.LOOKING;
        };
        leader = state == ServerState.LEADING ? empty(leader, Leader.class) : null;
        follower = state == ServerState.FOLLOWING ? empty(follower, Follower.class) : null;
        observer = state == ServerState.OBSERVING ? empty(observer, Observer.class) : null;
    }

    /** Asks for its state; a leader that is no voter any more leads until it has handed over. */
    public void settle() {
        refresh();
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(SETTLED_MS);
        while (state == ServerState.LEADING && "false".equals(shown("voting")) && System.nanoTime() < end) {
            refresh();
        }
    }

    /** Whether the process serves without an ensemble. */
    public boolean standsAlone() {
        return "standalone".equals(ServerProcess.field(process.ask("server_stats"), "server_state"));
    }

    private static <T> T empty(T present, Class<T> kind) {
        try {
            // Its constructor would begin to lead or to learn. The tests ask only whether there is one.
            return present != null ? present : kind.cast(UNSAFE.allocateInstance(kind));
        } catch (InstantiationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static Unsafe unsafe() {
        try {
            Field field = Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return (Unsafe) field.get(null);
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    @Override
    public synchronized ServerState getPeerState() {
        refresh();
        return state;
    }

    /** A suspended server of theirs takes part in no election. Ours does nothing. */
    @Override
    public void setSuspended(boolean suspend) {
        if (suspended != suspend) {
            process.signal(suspend ? "STOP" : "CONT");
            suspended = suspend;
        }
    }

    /** A change while the server runs is made by a restart. */
    @Override
    public void enableLocalSessions(boolean enabled) {
        super.enableLocalSessions(enabled);
        if (runs()) {
            shutdown();
            try {
                String text = Files.readString(config.toPath());
                Files.writeString(config.toPath(), text.replace("localSessionsEnabled=" + !enabled,
                        "localSessionsEnabled=" + enabled));
            } catch (IOException failure) {
                throw new IllegalStateException(failure);
            }
            start();
        }
    }

    private String shown(String field) {
        String value = ServerProcess.field(process.ask("zabstate"), field);
        if (value == null) {
            throw new IllegalStateException("the server does not show " + field);
        }
        return value;
    }

    @Override
    public int getClientPort() {
        return getClientAddress().getPort();
    }

    @Override
    public InetSocketAddress getClientAddress() {
        if (runs()) {
            String now = ServerProcess.field(process.ask("zabstate"), "client_address");
            clientAddress = now != null ? now : clientAddress;
        }
        int colon = clientAddress.lastIndexOf(':');
        return new InetSocketAddress("127.0.0.1", Integer.parseInt(clientAddress.substring(colon + 1)));
    }

    @Override
    public MultipleAddresses getQuorumAddress() {
        return getView().get(getMyId()).addr;
    }

    @Override
    public MultipleAddresses getElectionAddress() {
        return getView().get(getMyId()).electionAddr;
    }

    @Override
    public LearnerType getLearnerType() {
        return getView().get(getMyId()).type;
    }

    /** The members as the process knows them, or those of its configuration while it does not serve. */
    @Override
    public QuorumVerifier getQuorumVerifier() {
        String text = members;
        try {
            String shown = FourLetterWordMain.send4LetterWord("127.0.0.1", getClientPort(), "conf");
            if (shown.contains("server.")) {
                text = shown.lines().filter(line -> line.matches("(server|group|weight)\\..*|version=.*"))
                        .collect(Collectors.joining("\n"));
            }
        } catch (Exception refused) {
            // It does not serve.
        }
        try {
            var lines = new Properties();
            lines.load(new StringReader(text));
            return QuorumPeerConfig.parseDynamicConfig(lines, 3, false, false, null);
        } catch (IOException | QuorumPeerConfig.ConfigException malformed) {
            throw new IllegalStateException(text, malformed);
        }
    }

    @Override
    public long getAcceptedEpoch() {
        return Long.parseLong(shown("zab_epoch"));
    }

    @Override
    public long getLastLoggedZxid() {
        return Long.decode(shown("last_zxid"));
    }
}
