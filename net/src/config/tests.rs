//! Configuration files that are read, and those that are refused.

use super::*;

/// A folder with `zoo.cfg` and, where given, `myid`; `$D` in the text stands for the folder.
fn read(text: &str, my_id: Option<&str>) -> Result<(Config, Vec<String>), String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("zoo.cfg");
    std::fs::write(&path, text.replace("$D", folder.path().to_str().expect("UTF-8"))).expect("written");
    if let Some(my_id) = my_id {
        std::fs::write(folder.path().join("myid"), my_id).expect("written");
    }
    Config::read(&path)
        .map_err(|error| error.to_string().replace(folder.path().to_str().expect("UTF-8"), "$D"))
}

#[test]
fn the_sample_file_of_apache_zookeeper_is_read_without_a_notice() {
    let text = "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=$D\nclientPort=2181\nmaxClientCnxns=0\n";
    let (config, notices) = read(text, None).expect("valid");
    assert_eq!(notices, Vec::<String>::new());
    assert_eq!((config.min_session_timeout(), config.max_session_timeout()), (4000, 40_000));
    assert_eq!(config.client_socket().to_string(), "0.0.0.0:2181");
}

#[test]
fn an_ensemble_is_read_with_its_number() {
    let text = "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=$D\nclientPort=2182\n\
                server.1=zoo1:2888:3888\nserver.2=zoo2:2888:3888\nserver.3=[::1]:2888:3888:observer;127.0.0.1:2183\n";
    let (config, _) = read(text, Some("2\n")).expect("valid");
    assert_eq!(config.my_id, Some(2));
    assert_eq!(config.servers.len(), 3);
    assert_eq!(config.servers[2].role, PeerRole::Observer);
    assert_eq!(config.servers[2].first().host, "::1");
}

#[test]
fn one_voter_without_a_number_is_a_server_alone_as_in_zookeeper() {
    let text = "initLimit=10\nsyncLimit=5\ndataDir=$D\nclientPort=2182\nserver.1=zoo1:2888:3888\n";
    let (config, notices) = read(text, None).expect("valid");
    assert_eq!((config.my_id, config.servers.len()), (None, 0));
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    assert!(notice.starts_with("server.1 has no effect: it is the only server"), "{notice}");
    let (config, notices) = read(text, Some("1")).expect("valid");
    assert_eq!((config.my_id, config.servers.len(), notices.len()), (Some(1), 1, 0));
    let named = "initLimit=10\nsyncLimit=5\ndataDir=$D\nserver.1=zoo1:2888:3888;127.0.0.1:2183\n";
    let (config, _) = read(named, None).expect("the line names the port");
    assert_eq!(config.client_socket().to_string(), "127.0.0.1:2183");
    for more in ["standaloneEnabled=false\n", "reconfigEnabled=true\n", "server.2=zoo2:2888:3888\n"] {
        let refused = read(&format!("{text}{more}"), None).expect_err(more);
        assert!(refused.contains("$D/myid: cannot be read"), "{refused}");
    }
}

#[test]
fn values_with_which_zookeeper_serves_are_taken_as_the_nearest_ones_and_told_of() {
    let base = "dataDir=$D\nclientPort=2182\n";
    for (line, other) in [
        ("snapSizeLimitInKb=-1", "18014398509481983, no limit"),
        ("maxClientCnxns=-1", "0, no limit"),
        ("maxCnxns=-1", "0, no limit"),
        ("snapCount=1", "2, the least there is"),
        ("autopurge.snapRetainCount=0", "3, the least there is"),
        ("autopurge.snapRetainCount=2", "3, the least there is"),
        ("fsync.warningthresholdms=0", "1, the least there is"),
        ("zookeeper.globalOutstandingLimit=0", "1, the least there is"),
        ("minSessionTimeout=0", "1, the least there is"),
        ("clientPortListenBacklog=0", "-1, the default"),
        ("znode.container.checkIntervalMs=0", "60000, the default"),
        ("preAllocSize=16", "64, the least there is"),
    ] {
        let (_, notices) = read(&format!("{base}{line}\n"), None).expect(line);
        let [notice] = &notices[..] else { panic!("{line}: {notices:?}") };
        let line = line.trim_start_matches("zookeeper.");
        assert_eq!(
            notice.split_once(": ").map(|(_, rest)| rest),
            Some(&*format!("{line} is taken as {other}"))
        );
    }
    for line in
        ["maxClientCnxns=0", "minSessionTimeout=-1", "clientPortListenBacklog=-1", "peerType=Observer"]
    {
        assert_eq!(read(&format!("{base}{line}\n"), None).expect(line).1, Vec::<String>::new(), "{line}");
    }
}

#[test]
fn numbers_that_zookeeper_reads_as_system_properties_may_be_hexadecimal() {
    let base = "dataDir=$D\nclientPort=2182\n";
    for value in ["0x400000", "0X400000", "#400000", "4194304"] {
        let (config, _) = read(&format!("{base}jute.maxbuffer={value}\n"), None).expect(value);
        assert_eq!(config.jute_max_buffer, 4 << 20, "{value}");
    }
    for line in ["tickTime=0x10", "jute.maxbuffer=0x+1", "jute.maxbuffer=-0x1", "jute.maxbuffer=0x"] {
        read(&format!("{base}{line}\n"), None).expect_err(line);
    }
}

#[test]
fn several_addresses_of_a_server_are_read_where_they_are_enabled_and_else_refused_with_the_line() {
    let text = "initLimit=1\nsyncLimit=1\ndataDir=$D\nclientPort=1\nserver.1=b:1:2|a:3:4\nserver.2=c:1:2\n";
    let enabled = format!("{text}multiAddress.enabled=true\nmultiAddress.reachabilityCheckEnabled=true\n");
    let (config, notices) = read(&enabled, Some("1")).expect("valid");
    let described = "server.1=a:3:4|b:1:2:participant\nserver.2=c:1:2:participant\nversion=0";
    assert_eq!(config.members().describe(0), described);
    assert!(config.request_settings().multi_address_enabled);
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    assert!(notice.contains("has no effect: all addresses of a server are dialed at once"), "{notice}");
    let refused = read(text, Some("1")).expect_err("not enabled");
    assert_eq!(
        refused,
        "$D/zoo.cfg:5: server.1 has several addresses, which needs multiAddress.enabled=true"
    );
}

#[test]
fn a_port_for_two_purposes_is_read_with_a_notice() {
    let text = "initLimit=1\nsyncLimit=1\ndataDir=$D\nclientPort=1\nserver.1=b:2888:2888\nserver.2=c:1:2\n";
    let (config, notices) = read(text, Some("1")).expect("valid");
    assert_eq!(config.servers.len(), 2);
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    assert!(notice.contains(":5: server.1 names one port for two purposes"), "{notice}");
}

#[test]
fn an_editors_byte_order_mark_is_skipped_and_bytes_that_are_not_utf_8_are_refused_with_the_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, data) = (folder.path().join("zoo.cfg"), folder.path());
    std::fs::write(data.join("myid"), "\u{feff}1\r\n").expect("written");
    std::fs::write(data.join("members"), "\u{feff}server.1=a:1:2\nserver.2=b:1:2\n").expect("written");
    let text = format!(
        "initLimit=1\nsyncLimit=1\nclientPort=1\ndynamicConfigFile=members\ndataDir={}\n",
        data.display()
    );
    std::fs::write(&path, format!("\u{feff}skipACL=yes\n{text}")).expect("written");
    let (config, notices) = Config::read(&path).expect("valid");
    assert_eq!((config.skip_acl, config.my_id, config.servers.len(), notices.len()), (true, Some(1), 2, 0));
    std::fs::write(&path, [text.as_bytes(), b"# K\xf6ln\n"].concat()).expect("written");
    let refused = Config::read(&path).expect_err("ISO 8859-1").to_string();
    assert!(refused.ends_with("zoo.cfg:6: is not UTF-8: save the file in that encoding"), "{refused}");
}

#[test]
fn paths_that_only_a_shell_would_understand_are_refused() {
    for value in ["\"/var/lib/x\"", "'/var/lib/x'", "~/x", "$HOME/x"] {
        for key in [
            "dataDir",
            "dataLogDir",
            "dynamicConfigFile",
            "ssl.keyStore.location",
            "ssl.quorum.trustStore.passwordPath",
            "ringkeeper.peerSecretFile",
            "ringkeeper.ssl.quorum.crlFile",
        ] {
            let refused = read(&format!("{key}={value}\n"), None).expect_err(value);
            let told = format!("$D/zoo.cfg:1: {key}: {value} is taken as it stands: write the whole path");
            assert!(refused.starts_with(&told), "{refused}");
        }
    }
}

const IN_GROUPS: &str = "initLimit=1\nsyncLimit=1\ndataDir=$D\nclientPort=1\nserver.1=a:1:2\nserver.2=b:1:2\n\
                         server.3=c:1:2\nserver.4=d:1:2:observer\n";

#[test]
fn groups_and_weights_of_voters_are_read() {
    let text = format!("{IN_GROUPS}group.1=1:2\ngroup.2=3\nweight.2=3\n");
    let (config, notices) = read(&text, Some("1")).expect("valid");
    assert_eq!(notices, Vec::<String>::new());
    let described = config.members().describe(0);
    let groups = "\ngroup.1=1:2\ngroup.2=3\nweight.1=1\nweight.2=3\nweight.3=1\nversion=0";
    assert!(described.ends_with(groups), "{described}");
}

#[test]
fn groups_that_make_no_sense_are_refused_with_the_line() {
    for (lines, told) in [
        ("group.1=1:2\n", "$D/zoo.cfg:7: server 3 votes and is in no group"),
        ("weight.1=1\n", "$D/zoo.cfg:5: server 1 votes and is in no group"),
        ("group.1=1:2\ngroup.2=2:3\n", "$D/zoo.cfg:10: group.2: server 2 is in group 1 already"),
        ("group.1=1:2:3\ngroup.2=4\n", "$D/zoo.cfg:10: group 2 names server 4, which does not vote"),
        ("group.1=1:2:3\nweight.1=-1\n", "$D/zoo.cfg:10: weight.1: \"-1\" is not a number from 0 on"),
        (
            "group.1=1:2:3\nweight.1=0\nweight.2=0\nweight.3=0\n",
            "$D/zoo.cfg:10: no voter has a weight above 0",
        ),
    ] {
        let refused = read(&format!("{IN_GROUPS}{lines}"), Some("1")).expect_err(lines);
        assert!(refused.starts_with(told), "{refused}");
    }
}

#[test]
fn a_lease_is_as_long_as_silence_may_be_or_half_of_it() {
    let lease = |ms| read(&format!("{IN_GROUPS}ringkeeper.leaderLeaseMs={ms}\n"), Some("1"));
    for ms in [0, 250, 500] {
        assert_eq!(lease(ms).expect("valid").0.leader_lease_ms, ms);
    }
    for ms in [249, 501] {
        let told = format!("$D/zoo.cfg:9: ringkeeper.leaderLeaseMs {ms} is not between 250 and 500");
        let refused = lease(ms).expect_err("out of range");
        assert!(refused.starts_with(&told), "{refused}");
    }
}

#[test]
fn a_leader_that_gives_up_before_a_peer_counts_as_gone_is_told_of() {
    let notices = |lines: &str| read(&format!("{IN_GROUPS}{lines}"), Some("1")).expect("valid").1;
    assert_eq!(notices("tickTime=500\n"), Vec::<String>::new());
    let told = notices("tickTime=499\n");
    assert!(told[0].contains("499 ms, less than ringkeeper.peerTimeoutMs (500)"), "{told:?}");
}

#[test]
fn an_ensemble_without_a_voter_is_refused() {
    let observers = "initLimit=1\nsyncLimit=1\nclientPort=1\ndataDir=$D\nserver.1=a:1:2:observer\nserver.2=b:1:2:observer\n";
    let refused = read(observers, Some("1")).expect_err("nobody can lead");
    assert!(refused.contains("one has to be a participant"), "{refused}");
}

#[test]
fn observers_learn_from_followers_where_they_have_a_port() {
    for (line, port) in [("", 0), ("observerMasterPort=2191\n", 2191), ("observerMasterPort=0\n", 0)] {
        let (config, notices) = read(&format!("{IN_GROUPS}{line}"), Some("1")).expect("valid");
        assert_eq!((config.observer_master_port, notices.len()), (port, 0), "{line}");
    }
    let refused = read(&format!("{IN_GROUPS}observerMasterPort=65536\n"), Some("1")).expect_err("no port");
    assert!(refused.contains("observerMasterPort"), "{refused}");
}

#[test]
fn groups_stand_in_the_file_of_the_members_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, dynamic) = (folder.path().join("data"), folder.path().join("members"));
    std::fs::create_dir(&data).expect("created");
    std::fs::write(data.join("myid"), "1").expect("written");
    let read = |more: &str, members: &str| {
        let path = folder.path().join("zoo.cfg");
        let text = format!(
            "initLimit=1\nsyncLimit=1\nclientPort=1\ndataDir={}\ndynamicConfigFile=members\n{more}",
            data.display()
        );
        std::fs::write(&path, text).expect("written");
        std::fs::write(&dynamic, format!("server.1=a:1:2\nserver.2=b:1:2\n{members}")).expect("written");
        Config::read(&path)
            .map(|(config, _)| config.members().are_grouped())
            .map_err(|error| error.to_string())
    };
    assert_eq!(read("", "group.1=1:2\n"), Ok(true));
    let refused = read("", "group.1=1\n").expect_err("server 2 is in none");
    assert!(refused.contains("members:2: server 2 votes and is in no group"), "{refused}");
    let refused = read("group.1=1:2\n", "").expect_err("in both files");
    assert!(refused.contains("zoo.cfg:5: both dynamicConfigFile and"), "{refused}");
}

#[test]
fn preferred_leaders_are_voters_each_named_once() {
    let read_with = |preferred: &str, more: &str| {
        let text = format!(
            "initLimit=1\nsyncLimit=1\ndataDir=$D\nclientPort=1\nserver.1=a:1:2\nserver.2=b:1:2\n\
             server.3=c:1:2:observer\nringkeeper.preferredLeaders={preferred}\n{more}"
        );
        read(&text, Some("1")).map(|(config, _)| config.preferred_leaders)
    };
    assert_eq!(read_with("2, 1", ""), Ok(vec![2, 1]));
    assert_eq!(read_with("7", "reconfigEnabled=true\n"), Ok(vec![7]), "it may join");
    for (wrong, why) in
        [("1,1", "server 1 stands here twice"), ("3", "no voter"), ("7", "no voter"), ("a", "\"a\"")]
    {
        let told = read_with(wrong, "").expect_err(wrong);
        assert!(told.contains("ringkeeper.preferredLeaders") && told.contains(why), "{told}");
    }
}

#[test]
fn the_limit_of_outstanding_requests_is_divided_among_the_voting_servers_but_one() {
    let limit_of = |text: &str, my_id: &str| {
        let text = format!(
            "initLimit=1\nsyncLimit=1\ndataDir=$D\nclientPort=1\nglobalOutstandingLimit=2000\n{text}"
        );
        let (config, _) = read(&text, Some(my_id)).expect("valid");
        config.own_outstanding_requests_max()
    };
    let servers = |ids: std::ops::RangeInclusive<u32>| -> String {
        ids.map(|id| format!("server.{id}=127.0.0.1:{}:{}\n", 100 + id, 200 + id)).collect()
    };
    assert_eq!(limit_of("", "1"), 2000);
    assert_eq!(limit_of(&servers(1..=2), "1"), 2000);
    assert_eq!(limit_of(&servers(1..=3), "1"), 1000);
    assert_eq!(limit_of(&servers(1..=5), "1"), 500);
    let with_observer = format!("{}server.9=127.0.0.1:109:209:observer\n", servers(1..=3));
    assert_eq!((limit_of(&with_observer, "1"), limit_of(&with_observer, "9")), (1000, 2000));
}

#[test]
fn values_that_make_no_sense_name_file_and_line() {
    for (text, expected) in [
        ("dataDir=$D\nclientPort=99999\n", "$D/zoo.cfg:2: clientPort: 99999 is not a number from 1 to 65535"),
        (
            "dataDir=$D\ntickTime=fast\n",
            "$D/zoo.cfg:2: tickTime: \"fast\" is not a number from 1 to 2147483647",
        ),
        ("clientPort=1\n", "$D/zoo.cfg: dataDir is missing: name the folder for the data"),
        (
            "dataDir=$D\nclientPort=1\nskipACL=maybe\n",
            "$D/zoo.cfg:3: skipACL: \"maybe\" is neither yes nor no",
        ),
        (
            "dataDir=$D\nclientPort=1\nminSessionTimeout=9000\nmaxSessionTimeout=8000\n",
            "$D/zoo.cfg:4: minSessionTimeout 9000 is greater than maxSessionTimeout 8000",
        ),
    ] {
        assert_eq!(read(text, None).expect_err(text), expected);
    }
}

#[test]
fn a_number_that_is_no_server_of_the_ensemble_stops_the_start() {
    let text = "initLimit=1\nsyncLimit=1\ndataDir=$D\nclientPort=1\nserver.1=a:1:2\nserver.2=b:1:2\n";
    let error = read(text, Some("7")).expect_err("no server.7");
    assert_eq!(error, "$D/zoo.cfg:5: myid says 7, but there is no server.7 line, only server.1, server.2");
    let error = read(text, None).expect_err("no myid");
    assert!(error.starts_with("$D/myid: cannot be read"), "{error}");
}

#[test]
fn unknown_keys_are_named_with_the_nearest_known_one() {
    let (_, notices) = read("dataDir=$D\nclientPort=1\ntickTme=3\n", None).expect("valid");
    assert_eq!(notices.len(), 1);
    assert!(
        notices[0].contains(":3: tickTme is not a key that ringkeeper knows; did you mean tickTime?"),
        "{notices:?}"
    );
}

#[test]
fn a_key_far_from_every_known_one_is_not_taken_for_another() {
    let (_, notices) = read("dataDir=$D\nclientPort=1\ncompletelyDifferent=3\n", None).expect("valid");
    assert!(!notices[0].contains("did you mean"), "{notices:?}");
}

#[test]
fn settings_of_protection_stop_the_start_unless_they_are_named_as_left_out() {
    let base = "dataDir=$D\nclientPort=1\n";
    for (key, value) in [
        ("zookeeper.ssl.quorum.crl", "true"),
        ("ssl.crl", "true"),
        ("ssl.unheardOf", "1"),
        ("sessionRequireClientSASLAuth", "yes"),
        ("enforce.auth.schemes", "digest,sasl"),
        ("kerberos.unheardOf", "true"),
        ("audit.impl.class", "com.example.Auditor"),
        ("authProvider.1", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"),
        ("ensembleAuthName", "a"),
    ] {
        let (config, _) = read(&format!("{base}{key}={value}\n"), None).expect("well formed");
        let error = config.check_protection().expect_err(key).to_string();
        let name = key.trim_start_matches("zookeeper.");
        assert!(error.contains(&format!("none of: {name} (line 3): ")), "{error}");
        assert!(error.ends_with(&format!("ringkeeper.ignoreUnsupported={name}")), "{error}");
        let ignoring = format!("{base}{key}={value}\nringkeeper.ignoreUnsupported=x, {key}\n");
        let (config, _) = read(&ignoring, None).expect("well formed");
        assert_eq!(config.check_protection().expect(key).len(), 1);
    }
    let several = "ssl.authProvider=a.B\naudit.impl.class=a.B\nssl.context.supplier.class=a.B\n";
    let (config, _) = read(&format!("{base}{several}"), None).expect("well formed");
    let error = config.check_protection().expect_err("three keys").to_string();
    assert!(error.contains("ssl.authProvider (line 3), ssl.context.supplier.class (line 5): it"), "{error}");
    assert!(error.ends_with("=audit.impl.class,ssl.authProvider,ssl.context.supplier.class"), "{error}");
    let off = "sslQuorum=false\naudit.enable=no\n\
               authProvider.1=org.apache.zookeeper.server.auth.DigestAuthenticationProvider\n";
    let (config, _) = read(&format!("{base}{off}"), None).expect("well formed");
    assert_eq!(config.check_protection(), Ok(Vec::new()));
}

#[test]
fn a_super_digest_that_matches_no_password_is_reported() {
    let base = "dataDir=$D\nclientPort=1\nDigestAuthenticationProvider";
    let super_digest = format!("{base}.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n");
    for (setting, notices) in
        [("digestAlg=sha-1", 0), ("digestAlg=SHA-256", 1), ("enabled=true", 0), ("enabled=false", 1)]
    {
        let text = format!("{super_digest}DigestAuthenticationProvider.{setting}\n");
        let (config, _) = read(&text, None).expect("valid");
        assert_eq!(config.check_protection().expect("allowed").len(), notices, "{setting}");
    }
    let unknown = "dataDir=$D\nclientPort=1\nDigestAuthenticationProvider.digestAlg=MD2\n";
    assert!(read(unknown, None).expect_err("unknown").contains("none of SHA-1, "));
}

#[test]
fn keys_of_tls_are_read_and_those_without_effect_are_named() {
    let read = |text: &str| read(&format!("dataDir=$D\n{text}"), None);
    let text = "secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location=/k.pem\n\
                ssl.keyStore.password=geheim\nssl.ciphersuites=TLS_AES_128_GCM_SHA256,AES128-SHA\n\
                client.certReload=true\nssl.crl=true\nringkeeper.ssl.crlFile=/crl.pem\n\
                serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n";
    let (config, _) = read(text).expect("valid");
    assert_eq!((config.client_port, config.client_socket().to_string()), (0, "127.0.0.1:2281".to_owned()));
    assert!(!format!("{config:?}").contains("geheim"));
    let notices = config.check_protection().expect("all of it is there");
    assert_eq!(notices, ["ssl.ciphersuites: not safe, so not offered: AES128-SHA"]);
    let (config, _) = read("clientPort=1\nssl.clientAuth=none\n").expect("valid");
    assert!(config.check_protection().expect("allowed")[0].contains("neither secureClientPort"));
    let text = "clientPort=1\nsslQuorum=true\nssl.quorum.keyStore.location=/q.pem\nssl.keyStore.type=JKS\n\
                ssl.quorum.ciphersuites=AES128-SHA,TLS_AES_128_GCM_SHA256\nssl.quorum.crl=yes\n\
                ringkeeper.ssl.quorum.crlFile=/crl.pem\n\
                ssl.quorum.handshakeDetectionTimeoutMillis=7\nsslQuorumReloadCertFiles=true\n\
                ssl.quorum.hostnameVerification=false\n";
    let (config, notices) = read(text).expect("valid");
    assert!(notices[0].contains("server.N line") && notices.len() == 1, "{notices:?}");
    let (own, clients) = (&config.peer_tls.settings.0, &config.tls.settings.common);
    assert_eq!((&own.key_store.location, &clients.key_store.location), (&Some("/q.pem".into()), &None));
    assert_eq!(own.key_store.kind, None);
    assert!(config.peer_tls.is_demanded() && config.peer_tls.detection.as_millis() == 7);
    let notices = config.check_protection().expect("all of it is there");
    assert!(notices[1].starts_with("ssl.quorum.ciphersuites: not safe"), "{notices:?}");
    let (config, _) = read("clientPort=1\nssl.quorum.keyStore.location=/q\n").expect("valid");
    assert!(config.check_protection().expect("allowed")[0].contains("neither sslQuorum nor"));
    let (config, _) =
        read("clientPort=1\nssl.quorum.keyStore.location=/q\nadmin.forceHttps=true\n").expect("valid");
    assert_eq!(config.check_protection().expect("of use for the admin listener"), Vec::<String>::new());
    let alone = read("clientPort=1\nsecureClientPortAddress=127.0.0.1\n").expect_err("no port");
    assert!(alone.contains("needs secureClientPort, too"), "{alone}");
}

#[test]
fn enforced_authentication_names_schemes_that_there_are() {
    let read =
        |text: &str| read(&format!("dataDir=$D\nclientPort=1\nenforce.auth.enabled=true\n{text}"), None);
    let (config, _) = read("enforce.auth.schemes=digest, ip\n").expect("both are supported");
    assert_eq!((config.check_protection(), config.required_schemes().len()), (Ok(Vec::new()), 2));
    assert!(read("enforce.auth.schemes=key\n").expect_err("not supported").contains("key"));
    let off = "enforce.auth.schemes=digest\nDigestAuthenticationProvider.enabled=false\n";
    for text in ["", "enforce.auth.schemes=x509\n", off] {
        assert!(read(text).expect("well formed").0.check_protection().is_err(), "{text}");
    }
}

#[test]
fn users_of_sasl_come_from_a_file_that_nobody_else_can_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("jaas.conf");
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule required";
    std::fs::write(&path, format!("Login {{ {module} user_super=listed user_bob=geheim; }};"))
        .expect("written");
    let text = "dataDir=$D\nclientPort=1\nzookeeper.sasl.serverconfig=Login\nsuperUser=bob\n\
         superUser.x=eve\nauthProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
         SASLAuthenticationProvider.superPassword=other\nsessionRequireClientSASLAuth=true\n\
         enforce.auth.enabled=true\nallowSaslFailedClients=true\n";
    let (mut config, notices) = read(text, None).expect("well formed");
    assert_eq!(notices, Vec::<String>::new());
    let error = config.read_logins().expect_err("no file").to_string();
    assert!(error.starts_with("sasl.serverconfig: it needs java.security.auth.login.config"), "{error}");
    config.set_options(&[format!("java.security.auth.login.config={}", path.display())]).expect("valid");
    let mode = |mode| std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode));
    mode(0o644).expect("changed");
    let error = config.read_logins().expect_err("open to others").to_string();
    assert!(error.contains("chmod 600"), "{error}");
    mode(0o600).expect("changed");
    config.read_logins().expect("valid");
    assert_eq!(config.check_protection(), Ok(Vec::new()));
    assert_eq!(config.required_schemes(), ["sasl"]);
    let settings = config.sasl_settings([0; 32]);
    let mut users = Users::default();
    users.insert("super", "other");
    users.insert("bob", "geheim");
    assert_eq!((settings.users, settings.failed_clients_stay), (Some(users), true));
    assert_eq!(settings.super_users, BTreeSet::from(["bob".to_owned(), "eve".to_owned()]));
    assert!(config.request_settings().sasl_enabled);
    let shown = format!("{config:?}");
    assert!(!["other", "listed", "geheim"].iter().any(|secret| shown.contains(secret)), "{shown}");
}

#[test]
fn principals_of_kerberos_become_users_by_the_operators_rules() {
    let text = "dataDir=$D\nclientPort=1\nzookeeper.kerberos.removeHostFromPrincipal=true\n\
         kerberos.removeRealmFromPrincipal=true\n\
         security.auth_to_local=RULE:[2:$1](zk.*)s/^zk//g DEFAULT\n";
    let (config, notices) = read(text, None).expect("well formed");
    let rules = "RULE:[2:$1](zk.*)s/^zk//g DEFAULT".parse().expect("valid");
    let expected =
        Principals { rules, default_realm: String::new(), removes_host: true, removes_realm: true };
    assert_eq!((config.principals, notices), (expected, Vec::new()));
    let error = read("dataDir=$D\nclientPort=1\nsecurity.auth_to_local=RULE\n", None).expect_err("no rule");
    assert!(error.contains("security.auth_to_local: neither DEFAULT nor RULE:[NUMBER:FORMAT] in"), "{error}");
}

#[test]
fn sasl_between_servers_needs_the_settings_before_and_a_file() {
    for (lines, reason) in [
        ("learnerRequireSasl=true", "learnerRequireSasl: needs quorum.auth.enableSasl=true"),
        (
            "enableSasl=true\nquorum.auth.serverRequireSasl=true",
            "serverRequireSasl: needs quorum.auth.learnerRequireSasl=true",
        ),
        ("enableSasl=true", "enableSasl: it needs java.security.auth.login.config"),
    ] {
        let text = format!("dataDir=$D\nclientPort=1\nquorum.auth.{lines}\n");
        let (mut config, _) = read(&text, None).expect("well formed");
        let error = config.read_logins().expect_err(lines).to_string();
        assert!(error.starts_with(&format!("quorum.auth.{reason}")), "{error}");
    }
}

#[test]
fn users_of_scram_are_users_of_sasl() {
    let text = "dataDir=$D\nclientPort=1\nringkeeper.scramFile=/users\nsessionRequireClientSASLAuth=true\n";
    let (config, _) = read(text, None).expect("well formed");
    assert_eq!(
        (config.check_protection(), config.required_schemes()),
        (Ok(Vec::new()), vec!["sasl".to_owned()])
    );
    assert!(config.request_settings().sasl_enabled);
}

#[test]
fn values_that_zookeeper_takes_are_taken() {
    let text = "dataDir=$D\nclientPort=1\nznode.container.maxPerMinute=100000\njute.maxbuffer=100\n\
                clientPortAddress=[fe80::1%1]\nringkeeper.aclEntriesMax=7\n";
    let (config, notices) = read(text, None).expect("valid");
    assert_eq!(notices, Vec::<String>::new());
    assert_eq!((config.container_max_per_minute, config.jute_max_buffer), (100_000, 100));
    let scoped = SocketAddrV6::new("fe80::1".parse().expect("v6"), 1, 0, 1);
    assert_eq!(config.client_socket(), SocketAddr::from(scoped));
    assert_eq!(config.request_settings().limits.of(Limit::AclEntries), 7);
    let text = "dataDir=$D\ninitLimit=5\nsyncLimit=5\nserver.1=a:2:3;[fe80::1%1]:1\nserver.2=b:2:3\n";
    let (config, _) = read(text, Some("1")).expect("valid");
    assert_eq!(config.client_socket(), SocketAddr::from(scoped));
}

#[test]
fn keys_of_the_java_server_alone_are_accepted_with_the_reason_why_they_have_no_effect() {
    let (_, notices) = read("dataDir=$D\nclientPort=1\nadmin.httpVersion=20\n", None).expect("valid");
    assert_eq!(notices.len(), 1);
    assert!(notices[0].contains("admin.httpVersion has no effect"), "{notices:?}");
}
