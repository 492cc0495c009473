package org.apache.zookeeper;

import java.io.IOException;
import java.net.ServerSocket;

/**
 * Gives tests the ports of the block that they were started with, in turn, so that blocks of several runs
 * differ.
 */
public final class PortAssignment {

    private static final int FIRST = Integer.getInteger("tests.port");
    private static final int COUNT = Integer.getInteger("tests.ports");

    private static int next;

    private PortAssignment() {
    }

    /** A port nobody listens on. */
    public static synchronized int unique() {
        for (int tries = 0; tries < COUNT; tries++) {
            int port = FIRST + next;
            next = (next + 1) % COUNT;
            try {
                new ServerSocket(port).close();
                return port;
            } catch (IOException taken) {
                // The next one, then.
            }
        }
        throw new IllegalStateException("no free port from " + FIRST + " on");
    }
}
