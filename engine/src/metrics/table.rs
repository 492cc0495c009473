//! The table of metrics: docs/metrics.md says of each what to do about it.

use super::{Family, Kind, Origin};

/// Makes the table of lines: whose name it is, type, name, and what it counts.
macro_rules! families {
    ($($origin:ident $kind:ident $name:literal $help:literal)*) => {
        /// All metrics. "Since the start" is since the start of the process or, for what shards count, since
        /// `srst`.
        pub const FAMILIES: &[Family] =
            &[$(Family { name: $name, kind: Kind::$kind, origin: Origin::$origin, help: $help }),*];
    };
}

families! {
    // Requests
    ZooKeeper Gauge "avg_latency" "Average time from a request's arrival to its reply in ms, since the start"
    ZooKeeper Gauge "max_latency" "Longest time from a request's arrival to its reply in ms, since the start"
    ZooKeeper Gauge "min_latency" "Shortest time from a request's arrival to its reply in ms, since the start"
    ZooKeeper Summary "readlatency" "Time from the arrival of a read, sync or ping to its reply in ms"
    ZooKeeper Summary "updatelatency" "Time from the arrival of a write to its reply in ms"
    ZooKeeper Gauge "packets_received" "Frames received from clients, since the start"
    ZooKeeper Gauge "packets_sent" "Replies and notifications sent to clients, since the start"
    ZooKeeper Gauge "outstanding_requests" "Requests received and not yet answered"
    ZooKeeper Counter "bytes_received_count" "Bytes received from clients"
    ZooKeeper Counter "response_bytes" "Bytes of replies and notifications"
    ZooKeeper Counter "watch_bytes" "Bytes of notifications"
    ZooKeeper Gauge "last_client_response_size" "Bytes of the last reply, -1 before the first"
    ZooKeeper Gauge "max_client_response_size"
        "Bytes of the largest reply since the start, -1 before the first"
    ZooKeeper Gauge "min_client_response_size"
        "Bytes of the smallest reply since the start, -1 before the first"
    ZooKeeper Counter "stale_replies" "Writes whose client was gone when they were committed"

    // Connections and sessions
    ZooKeeper Gauge "num_alive_connections" "Open connections of clients"
    ZooKeeper Gauge "global_sessions" "Sessions of the ensemble"
    ZooKeeper Gauge "local_sessions" "Sessions known to this server alone: there are none"
    ZooKeeper Counter "connection_request_count" "Sessions asked for, new and resumed"
    ZooKeeper Counter "connection_revalidate_count" "Sessions that clients asked to resume here"
    ZooKeeper Counter "connection_rejected" "Connections and sessions refused"
    ZooKeeper Counter "sessionless_connections_expired"
        "Connections closed since they asked for no session in time"
    ZooKeeper Counter "stale_sessions_expired"
        "Sessions that this server as the leader ended since they were silent"
    ZooKeeper Counter "cnxn_closed_without_zk_server_running"
        "Connections closed since the server did not serve"
    ZooKeeper Gauge "auth_failed_count" "Credentials refused, since the start"
    ZooKeeper Gauge "outstanding_tls_handshake" "TLS handshakes under way"
    ZooKeeper Counter "unsuccessful_handshake" "TLS handshakes that failed"
    ZooKeeper Counter "tls_handshake_exceeded"
        "Connections refused since too many TLS handshakes were under way"
    Ringkeeper Counter "malformed_connections" "Connections closed since what they sent was malformed"
    Ringkeeper Counter "slow_reader_connections" "Connections closed since their clients did not read"
    Ringkeeper Counter "limit_exceeded" "Requests and connections refused because of a bound, by bound"
    Ringkeeper Gauge "output_queue_bytes" "Output that clients have not read yet"

    // Tree and watches
    ZooKeeper Gauge "znode_count" "Znodes; the root counts twice, as in ZooKeeper"
    ZooKeeper Gauge "ephemerals_count" "Ephemeral znodes"
    ZooKeeper Gauge "approximate_data_size" "Bytes of all paths and data"
    ZooKeeper Gauge "watch_count" "Pairs of a connection and a path that it watches for data"
    ZooKeeper Summary "node_created_watch_count" "Connections notified at once that a znode was created"
    ZooKeeper Summary "node_deleted_watch_count" "Connections notified at once that a znode was deleted"
    ZooKeeper Summary "node_changed_watch_count" "Connections notified at once that a znode's data changed"
    ZooKeeper Summary "node_children_watch_count"
        "Connections notified at once that a znode's children changed"
    ZooKeeper Counter "digest_mismatches_count" "Peers' digests of the tree that differed from this server's"
    Ringkeeper Counter "notifications_sent" "Notifications sent"

    // Pipeline and log
    ZooKeeper Counter "prep_processor_request_queued" "Requests that shards handed to the leader core"
    ZooKeeper Summary "prep_processor_queue_size" "Requests that the leader core took from a shard at once"
    ZooKeeper Summary "prep_processor_queue_time_ms" "Time of a request between shard and leader core in ms"
    ZooKeeper Summary "prep_process_time" "Time to prepare the requests of one pass of the leader core in ms"
    ZooKeeper Counter "sync_processor_request_queued" "Transactions given to the log"
    ZooKeeper Summary "sync_processor_batch_size" "Transactions that were appended to the log with one sync"
    ZooKeeper Summary "sync_processor_queue_time_ms" "Time that a transaction waited for the log in ms"
    ZooKeeper Summary "sync_processor_queue_flush_time_ms" "As fsynctime"
    ZooKeeper Summary "sync_processor_queue_and_flush_time_ms"
        "Time from a transaction's hand-over to the log until it was durable in ms"
    ZooKeeper Summary "fsynctime" "Time to append to the log, with the sync, in ms"
    Ringkeeper Counter "fsync_threshold_exceed_count" "Appends that took longer than fsync.warningthresholdms"
    ZooKeeper Summary "snapshottime" "Time to write a snapshot in ms"
    Ringkeeper Gauge "last_snapshot_bytes" "Bytes of the newest snapshot that this process has written"
    Ringkeeper Gauge "last_snapshot_zxid" "Zxid of the newest snapshot that this process has written"
    Ringkeeper Gauge "disk_full" "1 while the log has no room"
    Ringkeeper Counter "scrubbed_bytes" "Bytes of log and snapshots that were verified"
    Ringkeeper Counter "scrub_passes" "Passes over log and snapshots that verified them"
    Ringkeeper Gauge "scrub_last_pass_seconds_ago"
        "Time since the last such pass in seconds; -1 before the first"
    Ringkeeper Counter "damage_found" "Damaged files found"
    Ringkeeper Gauge "repairs_pending" "Damage that is not repaired yet"

    // Replication
    ZooKeeper Gauge "quorum_size" "Voters of the ensemble"
    ZooKeeper Gauge "learners" "Followers and observers that are connected; on the leader"
    ZooKeeper Gauge "synced_followers" "Followers that have the leader's history; on the leader"
    ZooKeeper Gauge "synced_observers" "Observers that have the leader's history; on the leader"
    ZooKeeper Gauge "pending_syncs" "Learners that do not have it yet; on the leader"
    ZooKeeper Counter "diff_count" "Learners that this server as the leader sent what their log lacked"
    ZooKeeper Counter "snap_count" "Learners that this server as the leader sent a snapshot"
    ZooKeeper Gauge "last_proposal_size"
        "Bytes of the last batch that was proposed, -1 before the first; on the leader"
    ZooKeeper Gauge "max_proposal_size"
        "Bytes of the largest batch that was proposed, -1 before the first; on the leader"
    ZooKeeper Gauge "min_proposal_size"
        "Bytes of the smallest batch that was proposed, -1 before the first; on the leader"
    ZooKeeper Counter "proposal_count" "Transactions that this server proposed as the leader"
    ZooKeeper Counter "commit_count" "Transactions that were committed while this server led"
    ZooKeeper Counter "learner_proposal_received_count" "Transactions that this server received as a learner"
    ZooKeeper Counter "learner_commit_received_count"
        "Transactions that were committed while this server followed"
    ZooKeeper Summary "quorum_ack_latency"
        "Time from a proposal to its commit by a quorum on the leader in ms"
    ZooKeeper Summary "propagation_latency"
        "Time from a transaction's creation on the leader to its commit here in ms, by both clocks"
    Ringkeeper Gauge "peers_connected" "Other servers that are connected"
    Ringkeeper Gauge "history_conflict" "1 for a minute after a server with another history was met"
    Ringkeeper Gauge "id_conflict" "1 for a minute after two processes with one id were met"

    // Elections and start
    ZooKeeper Counter "looking_count" "How often this server began to look for a leader"
    ZooKeeper Summary "election_time"
        "Time from the begin of a search for a leader until this server served in ms"
    ZooKeeper Summary "unavailable_time" "As election_time"
    ZooKeeper Summary "leader_unavailable_time" "As election_time, where this server led afterwards"
    ZooKeeper Summary "dbinittime" "Time to read snapshot and log at the start in ms"
    ZooKeeper Summary "startup_txns_loaded" "Transactions read from the log at the start"
    ZooKeeper Gauge "leader_uptime" "Time since this server leads in ms; on the leader"
    ZooKeeper Gauge "uptime" "Time since the start in ms"

    // The process
    ZooKeeper Gauge "open_file_descriptor_count" "Open file descriptors"
    ZooKeeper Gauge "max_file_descriptor_count" "File descriptors that the process may have"
    Process Counter "process_cpu_seconds_total" "CPU time in seconds"
    Process Gauge "process_start_time_seconds" "Start of the process in seconds since the Unix epoch"
    Process Gauge "process_open_fds" "Open file descriptors"
    Process Gauge "process_max_fds" "File descriptors that the process may have"
    Process Gauge "process_resident_memory_bytes" "Resident memory"
    Process Gauge "process_virtual_memory_bytes" "Virtual memory"
    Ringkeeper Gauge "shards" "Shards"
    Ringkeeper Gauge "memory_limit_bytes" "Memory above which the tree does not grow; 0 for none"
    Ringkeeper Counter "memory_limit_exceeded" "Requests refused since memory was short"
    Ringkeeper Counter "audit_records_lost" "Records that the audit log left out"

    // By stage
    Ringkeeper Histogram "request_seconds" "Time from a request's arrival to its reply, by kind and shard"
    Ringkeeper Histogram "stage_seconds" "Time of requests in one stage of the server, see docs/metrics.md"
}
