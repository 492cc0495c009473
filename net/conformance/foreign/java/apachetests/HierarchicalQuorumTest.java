package org.apache.zookeeper.test;

import org.apache.zookeeper.server.quorum.QuorumPeer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Stands in for the class of this name in Apache ZooKeeper's tests, which makes its servers itself: two
 * groups, one of them without weight.
 */
public class HierarchicalQuorumTest extends QuorumBase {

    private static final String GROUPS = "group.1=1:2:3\ngroup.2=4:5\nweight.1=1\nweight.2=1\nweight.3=1\nweight.4=0\n"
            + "weight.5=0\n";

    protected final ClientHammerTest cht = new ClientHammerTest();

    @BeforeEach
    @Override
    public void setUp() throws Exception {
        startServers();
        cht.hostPort = hostPort;
        cht.setUpAll();
    }

    void startServers() throws Exception {
        startServers(false);
    }

    void startServers(boolean withObservers) throws Exception {
        startEnsemble(withObservers, GROUPS);
    }

    @AfterEach
    @Override
    public void tearDown() throws Exception {
        cht.tearDownAll();
        super.tearDown();
    }

    @Test
    public void testHierarchicalQuorum() throws Throwable {
        cht.runHammer(5, 10);
    }
}
