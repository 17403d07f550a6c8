//! `leasehold sessions`, `drain` and `undrain`: what people change, with the real binary on a real Redis.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use testkit::process::{SOON, Scene, binary, eventually, leasehold, run, said};
use testkit::redis::RedisServer;
use testkit::temp_dir::TempDir;
use testkit::terminal::Terminal;

#[track_caller]
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let why = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(why.trim_end().lines().count(), 1, "one sentence: {why}");
    why
}

fn stored(redis: &RedisServer, id: &str) -> String {
    redis.cli(&["GET", &format!("session:{id}")])
}

#[test]
fn a_session_is_added_paused_resumed_and_removed() {
    let redis = RedisServer::start();
    let id = said(&run(&redis, &["sessions", "add", "10.0.0.7:8080", "--name", "front page"]));
    let id = id.trim_end();
    assert_eq!(id.len(), 36, "a UUID: {id}");
    let session: Value = serde_json::from_str(&stored(&redis, id)).unwrap();
    assert_eq!(session["address"], "10.0.0.7:8080");
    assert_eq!((&session["id"], &session["name"]), (&id.into(), &"front page".into()));
    assert_eq!(said(&run(&redis, &["sessions", "pause", id])), format!("paused {id}\n"));
    let session: Value = serde_json::from_str(&stored(&redis, id)).unwrap();
    assert_eq!(session["isPaused"], true);
    assert_eq!(said(&run(&redis, &["sessions", "resume", id])), format!("resumed {id}\n"));
    let session: Value = serde_json::from_str(&stored(&redis, id)).unwrap();
    assert_eq!(session["isPaused"], false);
    assert_eq!(said(&run(&redis, &["sessions", "remove", id])), format!("removed {id}\n"));
    assert_eq!(stored(&redis, id), "(nil)");
}

#[test]
fn what_is_there_is_neither_overwritten_nor_reformatted() {
    let redis = RedisServer::start();
    let text = r#"{ "id":"e1", "address":"h:1", "mine": [1, 2.50, "ä\u00e4"], "isPaused" : null }"#;
    redis.cli(&["SET", "session:e1", text]);
    let why = refused(&run(&redis, &["sessions", "add", "h:2", "--id", "e1"]));
    assert!(why.contains("there is a session e1 already"), "{why}");
    assert_eq!(stored(&redis, "e1"), text);
    said(&run(&redis, &["sessions", "pause", "e1"]));
    assert_eq!(stored(&redis, "e1"), text.replace("null", "true"), "every other byte stays");
    redis.cli(&["PEXPIRE", "session:e1", "100000"]);
    said(&run(&redis, &["sessions", "resume", "e1"]));
    assert!(redis.cli(&["PTTL", "session:e1"]).parse::<u64>().unwrap() > 1, "and its end");
}

#[test]
fn what_cannot_be_done_is_a_sentence_and_says_how_far_it_got() {
    let redis = RedisServer::start();
    redis.cli(&["SET", "session:e1", r#"{"id":"e1","address":"h:1"}"#]);
    redis.cli(&["RPUSH", "session:list", "x"]);
    redis.cli(&["SET", "session:text", "hello"]);
    let why = refused(&run(&redis, &["sessions", "pause", "e1", "nobody"]));
    assert!(why.contains("no session nobody") && why.contains("paused e1"), "{why}");
    assert!(refused(&run(&redis, &["sessions", "pause", "list"])).contains("is not a string"));
    assert!(refused(&run(&redis, &["sessions", "remove", "list"])).contains("session:list"));
    assert!(refused(&run(&redis, &["sessions", "pause", "text"])).contains("not a JSON object"));
    for args in [&["sessions"][..], &["sessions", "list", "x"], &["sessions", "pause"]] {
        assert_eq!(run(&redis, args).status.code(), Some(2), "{args:?}");
    }
    assert_eq!(run(&redis, &["sessions", "pause", "a b"]).status.code(), Some(2));
    for args in [&["sessions", "add", "nonsense"][..], &["sessions", "add", "h:1", "--id", "a b"]] {
        let output = run(&redis, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    }
}

/// A name that is read lossily is another name.
#[test]
fn a_word_that_is_not_text_is_refused_and_nothing_is_done() {
    let redis = RedisServer::start();
    redis.cli(&["SET", "session:a\u{fffd}", r#"{"id":"a","address":"h:1"}"#]);
    let redis = format!("--redis={}", redis.url());
    for command in [&["sessions", "remove"][..], &["drain"], &["explain"], &["resign"]] {
        let mut args: Vec<OsString> = command.iter().map(OsString::from).collect();
        args.extend([OsString::from_vec(b"a\xff".to_vec()), (&redis).into()]);
        let output = leasehold(&args);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {output:?}");
        let why = String::from_utf8(output.stderr).unwrap();
        assert!(why.contains("is not valid UTF-8"), "{why}");
    }
}

#[test]
fn the_list_shows_what_is_unowned_paused_and_not_understood() {
    let redis = RedisServer::start();
    assert_eq!(said(&run(&redis, &["sessions", "list"])), "no sessions stored\n");
    redis.cli(&["SET", "session:a", r#"{"id":"a","address":"h:1"}"#]);
    redis.cli(&["SET", "session:b", r#"{"id":"b","address":"tcp://h:1","isPaused":true}"#]);
    redis.cli(&["SET", "session:c", "\u{1b}[31m"]);
    let page = said(&run(&redis, &["sessions", "list"]));
    let rows: Vec<&str> = page.lines().collect();
    assert!(rows[1].contains("http://h:1") && rows[1].ends_with("unowned"), "{page}");
    assert!(rows[2].contains("tcp://h:1") && rows[2].ends_with("paused"), "{page}");
    assert!(rows[3].contains("not JSON") && !page.contains('\u{1b}'), "{page}");
    redis.query(&[&b"SET"[..], b"session:a b\x1b", b"{}"]).unwrap();
    let page = said(&run(&redis, &["sessions", "list"]));
    let row = page.lines().find(|it| it.contains("a b")).unwrap();
    assert!(row.contains("no id: an id is 1 to 128") && !page.contains('\u{1b}'), "{page}");
    let json = said(&run(&redis, &["sessions", "list", "--json"]));
    assert!(!json.contains('\u{1b}'), "{json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["sessions"][1]["paused"], true, "{json}");
    assert!(json["sessions"][2]["error"].is_string(), "{json}");
    assert_eq!(json["sessions"][3]["id"], "a b\u{1b}", "{json}");
    assert!(json["sessions"][3]["error"].as_str().unwrap().contains("no id"), "{json}");
}

fn import(redis: &RedisServer, lines: &str) -> Output {
    import_with(redis, lines, &[])
}

fn import_with(redis: &RedisServer, lines: &str, args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(["sessions", "import", &format!("--redis={}", redis.url())]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines = lines.to_owned();
    let feed = std::thread::spawn(move || drop(stdin.write_all(lines.as_bytes())));
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    output
}

#[test]
fn a_hundred_thousand_lines_are_imported_in_seconds() {
    let redis = RedisServer::start();
    let line = |n: usize| format!(r#"{{"id":"s{n}","address":"10.0.0.1:80","mine":{n}}}"#);
    let lines: Vec<String> = (0..100_000).map(line).collect();
    let began = Instant::now();
    let done = said(&import(&redis, &lines.join("\n")));
    println!("100,000 sessions imported in {:?}", began.elapsed());
    assert_eq!(done, "100000 added, 0 changed, 0 as they were\n");
    assert_eq!(redis.cli(&["DBSIZE"]), "100000");
    assert_eq!(stored(&redis, "s77777"), line(77_777));
    let again = format!("{}\n\n{}\n", line(5), line(6).replace("10.0.0.1", "10.0.0.2"));
    assert_eq!(said(&import(&redis, &again)), "0 added, 1 changed, 1 as they were\n");
}

#[test]
fn an_import_with_a_line_that_is_wrong_stores_nothing() {
    let redis = RedisServer::start();
    let lines = "{\"id\":\"a\",\"address\":\"h:1\"}\nnonsense\n{\"id\":\"b\"}\n";
    let why = refused(&import(&redis, lines));
    for part in ["nothing was imported", "2 lines", "line 2", "line 3: address is missing"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(redis.cli(&["DBSIZE"]), "0");
    let endless = format!("{{\"id\":\"a\",\"x\":\"{}\"}}", "y".repeat(5_000_000));
    assert!(refused(&import(&redis, &endless)).contains("nothing was imported"));
}

#[test]
fn what_was_done_is_told_to_programs_as_json_and_ids_that_come_twice_are_counted() {
    let redis = RedisServer::start();
    let lines = "{\"id\":\"a\",\"address\":\"h:1\"}\n{\"id\":\"b\",\"address\":\"h:1\"}\n\
                 {\"id\":\"a\",\"address\":\"h:2\"}\n";
    let told = said(&import(&redis, lines));
    assert!(told.starts_with("2 added, 0 changed, 0 as they were; 1 line had an id"), "{told}");
    assert!(stored(&redis, "a").contains("h:2"), "the last one holds");
    let parsed = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    let told = parsed(said(&import_with(&redis, lines, &["--json"])));
    let wanted = json!({"added": 0, "changed": 0, "unchanged": 2, "repeated": 1});
    assert_eq!(told, wanted);
    let told = parsed(said(&run(&redis, &["sessions", "pause", "a", "b", "--json"])));
    assert_eq!(told, json!({"paused": ["a", "b"]}));
    let told = parsed(said(&run(&redis, &["sessions", "add", "h:1", "--id", "c", "--json"])));
    assert_eq!(told, json!({"id": "c"}));
}

/// A bar that was half drawn must not stand in front of the reason.
#[test]
fn an_import_that_fails_half_way_says_so_on_a_line_of_its_own() {
    let redis = RedisServer::start_with(&["--maxmemory", "4mb"]);
    let dir = TempDir::new();
    let file = dir.path().join("sessions");
    let line =
        |n: usize| format!(r#"{{"id":"s{n:05}","address":"h:1","x":"{}"}}"#, "y".repeat(1_000));
    std::fs::write(&file, (0..10_000).map(|n| line(n) + "\n").collect::<String>()).unwrap();
    let url = format!("--redis={}", redis.url());
    let mut terminal =
        Terminal::start(&["sessions", "import", file.to_str().unwrap(), &url], 20, 400);
    assert_eq!(terminal.wait().code(), Some(1));
    let screen = terminal.wait_for("import again");
    let first = screen.lines().next().unwrap();
    assert!(first.starts_with("leasehold: cannot store sessions on"), "{screen}");
    assert!(!screen.contains('#'), "{screen}");
}

/// Two operators who look at the same moment both see the other's host at work.
#[test]
fn two_who_drain_at_once_leave_somebody() {
    let scene = Scene::new(4);
    let [one, two] = ["one", "two"].map(|it| format!("--host-name={it}"));
    let first = scene.first(&[&one]);
    let second = scene.join(&[&two]);
    scene.wait_for_balance(&[&first, &second], SOON);
    for _ in 0..10 {
        let drains: Vec<_> = ["one", "two"]
            .map(|it| {
                let url = scene.redis.url();
                std::thread::spawn(move || {
                    leasehold(&["drain", it, &format!("--redis={url}")]).status.code()
                })
            })
            .into_iter()
            .map(|it| it.join().unwrap())
            .collect();
        assert!(drains.contains(&Some(1)) && drains.contains(&Some(0)), "{drains:?}");
        assert_eq!(scene.redis.cli(&["SCARD", "poll:drain"]), "1");
        scene.redis.cli(&["DEL", "poll:drain"]);
        let weights = || {
            let ids = [&first, &second].map(|it| format!("poll:node:{}", it.id()));
            ids.map(|it| scene.redis.cli(&["GET", &it]))
        };
        eventually(SOON, "both at work", || format!("{:?}", weights()), || weights() == ["1", "1"]);
    }
}

#[test]
fn an_id_that_nobody_has_is_not_drained_and_paused_endpoints_are_not_counted() {
    let scene = Scene::new(3);
    scene.put_session("e1", json!({"isPaused": true}));
    let first = scene.first(&["--host-name=one"]);
    let count = || scene.counts(&[&first]);
    eventually(SOON, "two leases", || format!("{:?}", count()), || count() == [2]);
    let why = refused(&run(&scene.redis, &["drain", "vm1-1794821395633051180-75ceaf55"]));
    assert!(why.contains("no instance vm1-") && why.contains("leasehold status"), "{why}");
    assert_eq!(scene.redis.cli(&["EXISTS", "poll:drain"]), "0");
    let why = refused(&run(&scene.redis, &["drain", "one"]));
    assert!(why.contains("nobody would be left to poll 2 endpoints"), "{why}");
    // A lease that a stranger keeps on a paused endpoint does not move.
    scene.redis.cli(&["SET", "poll:lease:e1", &first.id(), "PX", "10000"]);
    let told = said(&run(&scene.redis, &["drain", &first.id(), "--force"]));
    assert!(told.contains("hands over 2 leases"), "{told}");
}

#[test]
fn a_drained_host_hands_over_and_comes_back() {
    let scene = Scene::new(6);
    let first = scene.first(&["--host-name=one"]);
    let second = scene.join(&["--host-name=two"]);
    scene.wait_for_balance(&[&first, &second], SOON);
    let began = Instant::now();
    let done = said(&run(&scene.redis, &["drain", "one", "--wait", "10s"]));
    assert!(done.contains("has handed over 3 leases"), "{done}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(scene.counts(&[&first, &second]), [0, 6]);
    let why = refused(&run(&scene.redis, &["drain", &second.id()]));
    assert!(why.contains("nobody would be left to poll 6 endpoints"), "{why}");
    let page = said(&run(&scene.redis, &["status"]));
    assert!(page.contains("Drained: one"), "{page}");
    assert!(said(&run(&scene.redis, &["undrain", "one"])).contains("takes its share again"));
    scene.wait_for_balance(&[&first, &second], SOON);
    assert!(said(&run(&scene.redis, &["undrain", "one"])).contains("was not drained"));
    let why = refused(&run(&scene.redis, &["drain", "elsewhere"]));
    assert!(why.contains("no instance or host elsewhere") && why.contains("--absent"), "{why}");
    let later = said(&run(&scene.redis, &["drain", "elsewhere", "--absent"]));
    assert!(later.contains("no instance of that name"), "{later}");
    assert!(said(&run(&scene.redis, &["drain", "elsewhere"])).contains("is drained"), "as it was");
    let alone = said(&run(&scene.redis, &["drain", &second.id(), "--force"]));
    assert!(alone.contains("hands over 3 leases"), "{alone}");
    let told = || format!("{:?}", scene.counts(&[&first, &second]));
    eventually(SOON, "a hand-over", told, || scene.counts(&[&first, &second]) == [6, 0]);
}

/// Results of what is gone do not pile up, however the session was removed. The result of a session that comes back is kept.
#[test]
fn what_is_remembered_of_a_removed_session_ends_after_a_day() {
    let scene = Scene::new(3);
    let first = scene.first(&[]);
    let polled = || scene.endpoints.iter().all(|it| scene.result(it).contains_key("body"));
    eventually(SOON, "results", || format!("{:?}", scene.result("e1")), polled);
    let left = |id: &str| -> i64 {
        scene.redis.cli(&["TTL", &format!("poll:result:{id}")]).parse().unwrap()
    };
    said(&run(&scene.redis, &["sessions", "remove", "e1"]));
    scene.redis.cli(&["DEL", "session:e2"]);
    for id in ["e1", "e2"] {
        let ends = || (86_000..=86_400).contains(&left(id));
        eventually(SOON, "an end", || left(id).to_string(), ends);
    }
    assert_eq!(left("e3"), -1, "what is polled stays");
    scene.put_session("e1", json!({}));
    let held = || scene.owned_by(&first).contains(&"e1".into());
    eventually(SOON, "it is polled again", || format!("{:?}", scene.owners()), held);
    assert!(left("e1") > 365 * 86_400, "{}", left("e1"));
    scene.redis.cli(&["HSET", "poll:result:nobodys", "granted", "7"]);
    scene.redis.cli(&["SET", "session:nobodys", "{}"]);
    said(&run(&scene.redis, &["sessions", "remove", "nobodys"]));
    assert!((86_000..=86_400).contains(&left("nobodys")), "nobody had it: {}", left("nobodys"));
}

/// A slip of the finger is an error, and what was probably meant is named.
#[test]
fn a_name_that_nobody_has_is_refused_with_the_nearest_one() {
    let scene = Scene::new(2);
    let mut first = scene.first(&["--host-name=vm-berlin-1", "--lead=mailer"]);
    let second = scene.join(&["--host-name=vm-berlin-2"]);
    scene.wait_for_balance(&[&first, &second], SOON);
    first.wait_for("event=leader.elected");
    let run = |args: &[&str]| run(&scene.redis, args);
    let why = refused(&run(&["drain", "vm-berlim-1"]));
    assert!(why.contains("did you mean vm-berlin-1?") && why.contains("--absent"), "{why}");
    let why = refused(&run(&["drain", "vm-berlim-1", "--force"]));
    assert!(why.contains("did you mean vm-berlin-1?"), "{why}");
    assert_eq!(scene.redis.cli(&["EXISTS", "poll:drain"]), "0");
    let why = refused(&run(&["undrain", "vm-berlim-1"]));
    assert!(why.contains("is not drained") && why.contains("did you mean vm-berlin-1?"), "{why}");
    assert!(said(&run(&["undrain", &second.id()])).contains("was not drained"), "it is known");
    let why = refused(&run(&["resign", "mailr"]));
    assert!(why.contains("was never led here: did you mean mailer?"), "{why}");
    let why = refused(&run(&["explain", "e11"]));
    assert!(why.contains("did you mean e1?"), "{why}");
    let why = refused(&run(&["plan", "--leave", "vm-berlin1"]));
    assert!(why.contains("did you mean vm-berlin-1?"), "{why}");
    // One that is down at the moment, but was here, is no slip: it may be about to come back.
    assert!(first.term().success());
    let remembered = || {
        let history = run(&["history"]);
        let text = format!("{history:?}");
        text.contains("stopped")
    };
    eventually(SOON, "its stop in the history", String::new, remembered);
    let told = said(&run(&["drain", "vm-berlin-1"]));
    assert!(told.contains("no instance of that name runs at the moment"), "{told}");
    let nobody = said(&run(&["resign", "mailer"]));
    assert!(nobody.contains("nobody leads mailer"), "{nobody}");
}

/// `polled` is what is polled.
#[test]
fn the_list_says_polled_of_what_is_polled_and_else_the_state() {
    let scene = Scene::new(2);
    let list = || said(&run(&scene.redis, &["sessions", "list"]));
    let states = || -> Vec<String> {
        let last = |it: &str| it.split_whitespace().last().unwrap().to_owned();
        list().lines().skip(1).map(last).collect()
    };
    assert_eq!(states(), ["unowned", "unowned"], "nobody runs");
    let mut first = scene.first(&[]);
    eventually(SOON, "polled", list, || states() == ["polled", "polled"]);
    let json = said(&run(&scene.redis, &["sessions", "list", "--json"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["sessions"][0]["state"], "ok", "{json}");
    assert_eq!(json["sessions"][0]["owner"], first.id().as_str(), "{json}");
    assert!(first.term().success());
    assert_eq!(states(), ["unowned", "unowned"], "it has stopped");
}

/// Fields that look like ours are kept, ignored, and told of.
#[test]
fn a_field_that_was_probably_meant_to_be_another_is_told_wherever_it_is_met() {
    let scene = Scene::new(1);
    let first = scene.first(&[]);
    scene.put_session("e1", json!({"paused": true, "interval": 7, "mine": 1}));
    for (field, meant) in [("paused", "isPaused"), ("interval", "intervalMs")] {
        let line = first.wait_for_line(SOON, "session.odd", |it| {
            it.contains("event=session.odd") && it.contains(&format!("did you mean {meant}?"))
        });
        assert!(line.contains("endpoint=e1") && line.contains(field), "{line}");
    }
    let page = said(&run(&scene.redis, &["explain", "e1"]));
    assert!(page.contains("the field \"paused\" is ignored: did you mean isPaused?"), "{page}");
    let page = said(&run(&scene.redis, &["sessions", "list"]));
    assert!(page.contains("; the field \"interval\" is ignored"), "{page}");
    assert!(stored(&scene.redis, "e1").contains("\"paused\":true"), "it is kept");
    let told = first.lines(&["event=session.odd"]);
    assert_eq!(told.len(), 2, "once per change, and not the author's own: {told:?}");
    let lines =
        "{\"id\":\"a\",\"address\":\"h:1\"}\n{\"id\":\"b\",\"address\":\"h:1\",\"isPause\":true}\n";
    let output = import(&scene.redis, lines);
    assert_eq!(said(&output), "2 added, 0 changed, 0 as they were\n");
    let warned = String::from_utf8(output.stderr).unwrap();
    let wanted = "leasehold: line 2: the field \"isPause\" is ignored: did you mean isPaused?\n";
    assert_eq!(warned, wanted);
    let why = refused(&import(&scene.redis, "{\"id\":\"c\",\"url\":\"h:1\"}\n"));
    assert!(why.contains("\"url\" is there: did you mean address?"), "{why}");
}

/// As many ids as fit on a command line.
#[test]
fn more_than_ten_thousand_sessions_are_removed_at_once() {
    let redis = RedisServer::start();
    let ids: Vec<String> = (0..10_001).map(|n| format!("s{n}")).collect();
    let line = |id: &String| format!("{{\"id\":\"{id}\",\"address\":\"h:1\"}}\n");
    said(&import(&redis, &ids.iter().map(line).collect::<String>()));
    let url = format!("--redis={}", redis.url());
    let args: Vec<&str> =
        ["sessions", "remove", &url].into_iter().chain(ids.iter().map(String::as_str)).collect();
    let done = said(&leasehold(&args));
    assert_eq!(done.lines().count(), 10_001);
    assert_eq!(redis.cli(&["DBSIZE"]), "0");
    // Of many that were done before a failure the last few are named.
    said(&import(&redis, &ids[..20].iter().map(line).collect::<String>()));
    let args = [&args[..23], &["nobody"]].concat();
    let why = refused(&leasehold(&args));
    assert!(
        why.contains("no session nobody") && why.contains("10 more, then removed s10"),
        "{why}"
    );
}
