//! `leasehold top` in a terminal of its own: what it shows, and how it leaves.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use testkit::process::{SOON, Scene, eventually, leasehold, leasehold_with, ms};
use testkit::redis::RedisServer;
use testkit::target::Answer;
use testkit::terminal::Terminal;

fn top(redis: &RedisServer, args: &[&str]) -> Terminal {
    top_of(redis, args, 40, 120)
}

fn top_of(redis: &RedisServer, args: &[&str], rows: usize, columns: usize) -> Terminal {
    let url = format!("--redis={}", redis.url());
    let all = [&["top", &url, "--refresh=200ms", "--store-timeout=500ms"], args].concat();
    Terminal::start(&all, rows, columns)
}

/// Stored sessions `e001`, `e002`, …, of which nobody polls any.
fn sessions(n: usize) -> RedisServer {
    let redis = RedisServer::start();
    let mut pipe = redis::pipe();
    for n in 1..=n {
        let id = format!("e{n:03}");
        let session = json!({"id": id, "address": "127.0.0.1:1"}).to_string();
        pipe.cmd("SET").arg(format!("session:{id}")).arg(session);
    }
    pipe.exec(&mut redis.connect().unwrap()).unwrap();
    redis
}

/// The endpoints as they are listed.
fn listed(text: &str) -> Vec<&str> {
    let first = text.lines().filter_map(|it| it.split_whitespace().next());
    first.filter(|it| it.starts_with('e') && it.len() == 4).collect()
}

/// CONTRACT: "the same, live, in the terminal".
#[test]
fn it_shows_what_status_shows_and_goes_on_showing_it() {
    let scene = Scene::new(9);
    let fleet = scene.fleet(3);
    let mut top = top(&scene.redis, &[]);
    let verdict = "3 instances share 9 endpoints: all polled, balanced.";
    let text = top.wait_until(verdict, |it| it.starts_with(verdict) && it.contains("acquired"));
    assert!(text.lines().nth(1).unwrap().starts_with(&scene.redis.url()), "{text}");
    let owners = scene.owners();
    let short = |id: &str| format!("vm-{}", id.rsplit('-').next().unwrap());
    for instance in &fleet {
        let words = |it: &str| it.split_whitespace().map(String::from).collect::<Vec<_>>();
        let line = text.lines().map(words).find(|it| it.first() == Some(&short(&instance.id())));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        assert!(line[1].chars().all(|it| it == '█') && line[2..5] == ["3", "3.0", "1"], "{text}");
        assert_eq!(line.last().unwrap(), env!("CARGO_PKG_VERSION"), "{text}");
    }
    for endpoint in &scene.endpoints {
        let line = text.lines().find(|it| it.starts_with(endpoint.as_str())).unwrap();
        assert!(line.contains(&short(&owners[endpoint])) && line.contains("ok 200 in"), "{text}");
        assert!(line.contains(&scene.result(endpoint)["granted"]), "{text}");
    }
    top.wait_until("several latencies", |it| {
        let bars = |it: &str| it.chars().filter(|it| ('▁'..='█').contains(it)).count();
        it.lines().any(|it| it.starts_with("e1") && bars(it) >= 5)
    });
    scene.target.answer("e3", Answer { status: 503, ..Answer::default() });
    top.wait_until("the failure, first", |it| {
        let first = it.lines().skip_while(|it| !it.starts_with("ENDPOINT")).nth(1);
        first
            .is_some_and(|it| it.starts_with("e3") && it.contains("failed 503") && it.contains('×'))
    });
    scene.put_session("e4", json!({"isPaused": true}));
    top.wait_until("the release", |it| {
        it.lines().any(|it| it.contains("e4") && it.contains("released") && it.contains("paused"))
    });
    top.keys("q");
    assert_eq!(top.wait().code(), Some(0));
    top.assert_restored();
    assert!(top.with(|it| it.coloured && it.overlong == 0));
}

#[test]
fn the_terminal_is_as_it_was_whatever_ends_it() {
    let redis = sessions(3);
    let ways: [(&str, Option<Signal>); 7] = [
        ("q", None),
        ("\x03", None),
        ("/q", None),
        ("", Some(Signal::SIGTERM)),
        ("", Some(Signal::SIGINT)),
        ("", Some(Signal::SIGHUP)),
        ("?", Some(Signal::SIGQUIT)),
    ];
    for (keys, signal) in ways {
        let mut top = top(&redis, &[]);
        top.wait_for("nobody polls 3 endpoints");
        assert!(top.with(|it| it.alternate && !it.cursor_shown), "{keys:?}");
        match keys {
            // A q that is typed into a filter does not quit; an Esc and a q at once would be an Alt-q.
            "/q" => {
                top.keys("/q");
                top.wait_for("filter: q");
                top.keys("\x1b");
                top.wait_without("filter: q");
                top.keys("q");
            }
            _ => top.keys(keys),
        }
        signal.into_iter().for_each(|it| top.signal(it));
        assert_eq!(top.wait().code(), Some(0), "{keys:?} {signal:?}");
        top.assert_restored();
    }
}

/// The shell gets its terminal back, and a resumed `top` draws the whole screen.
#[test]
fn a_stop_leaves_the_terminal_as_it_was_and_goes_on_where_it_was() {
    let redis = sessions(3);
    let mut top = top(&redis, &[]);
    for stop in [None, Some(Signal::SIGTSTP)] {
        top.wait_for("nobody polls 3 endpoints");
        let erased = top.with(|it| it.erased);
        match stop {
            Some(signal) => top.signal(signal),
            None => top.keys("\x1a"),
        }
        eventually(SOON, "a stop", || top.text(), || top.is_stopped());
        top.assert_restored();
        top.signal(Signal::SIGCONT);
        let back = || top.with(|it| it.alternate && !it.cursor_shown && it.erased > erased + 1);
        eventually(SOON, "a whole screen", || top.text(), back);
    }
    top.wait_for("e003");
    top.keys("q");
    assert_eq!(top.wait().code(), Some(0));
    top.assert_restored();
}

/// A verdict that is long is broken between words; what is cut is marked.
#[test]
fn a_long_verdict_has_several_lines() {
    let redis = sessions(3);
    redis.cli(&["SET", "poll:drain", "x"]);
    let top = top_of(&redis, &[], 24, 80);
    let text = top.wait_for("redis-cli DEL poll:drain");
    let head: Vec<&str> = text.lines().take(3).collect();
    assert!(head[0].ends_with("type"), "between words: {text}");
    assert!(head[2].ends_with('.') || head[2].ends_with('…'), "{text}");
}

#[test]
fn it_ends_when_its_terminal_is_gone() {
    let redis = sessions(3);
    let top = top(&redis, &[]);
    top.wait_for("e003");
    let (ended, took) = top.hang_up();
    assert_eq!(ended.code(), Some(0));
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn every_size_of_a_terminal_is_filled_and_not_overfilled() {
    let redis = sessions(50);
    redis.cli(&["SET", "poll:node:vm1-1-aaaaaaaa", "1", "PX", "600000"]);
    for n in 1..=8 {
        redis.cli(&["XADD", "poll:history", "*", "endpoint", &format!("e{n}"), "event", "lost"]);
    }
    let mut top = top_of(&redis, &[], 24, 80);
    let verdict = "1 instance has 50 endpoints";
    top.wait_for("1-8 of 50");
    for (rows, columns) in [(50, 200), (12, 40), (6, 30), (3, 20), (2, 10), (1, 5), (24, 80)] {
        top.resize(rows, columns);
        let start: String = verdict.chars().take(columns - 1).collect();
        let text = top.wait_until(&format!("{rows} rows"), |it| {
            it.starts_with(&start) && !it.contains("??") && it.lines().count() <= rows
        });
        let lines: Vec<&str> = text.split('\n').collect();
        let before = top.with(|it| it.overlong);
        // In the smallest there is no room for the help, so nothing may be drawn at all.
        top.keys("?x");
        top.watch(ms(200), |_| assert_eq!(top.with(|it| it.overlong), before, "{text}"));
        if rows >= 6 {
            assert!(listed(&text).contains(&"e001"), "{text}");
        }
        if columns >= 60 && rows > 1 {
            assert!(lines[rows - 1].starts_with("q quit"), "{text}");
            assert!(text.contains("TIME  ") == (rows >= 24), "{text}");
        }
    }
}

#[test]
fn while_redis_is_away_the_last_picture_stays_and_it_goes_on_afterwards() {
    let mut redis = sessions(4);
    redis.save();
    let mut top = top(&redis, &[]);
    top.wait_for("e004");
    redis.kill();
    let text = top.wait_until("the trouble", |it| it.contains("No answer for 2 s: cannot connect"));
    assert!(!text.contains("all polled"), "from an old picture: {text}");
    assert!(text.contains("How the fleet is now is not known"), "{text}");
    assert_eq!(listed(&text), ["e001", "e002", "e003", "e004"], "{text}");
    redis.restart();
    redis.cli(&["DEL", "session:e004"]);
    let text = top.wait_without("No answer for");
    assert_eq!(listed(&text), ["e001", "e002", "e003"], "{text}");
    // It hangs: keys work all the same, and nobody waits for Redis to leave.
    redis.pause();
    top.wait_for("no answer in time");
    top.keys("s");
    top.wait_for("by endpoint");
    let asked_at = Instant::now();
    top.keys("q");
    assert_eq!(top.wait().code(), Some(0));
    assert!(asked_at.elapsed() < ms(1_000), "{:?}", asked_at.elapsed());
    top.assert_restored();
    redis.resume();
}

#[test]
fn keys_sort_filter_scroll_pause_and_help() {
    let redis = sessions(60);
    redis.cli(&["SET", "poll:node:vm7-1-aaaaaaaa", "1", "PX", "600000"]);
    redis.cli(&["SET", "poll:lease:e042", "vm7-1-aaaaaaaa", "PX", "600000"]);
    let mut top = top_of(&redis, &[], 20, 100);
    let text = top.wait_for("by state]");
    let first = listed(&text).len();
    assert!(first > 3 && text.contains(&format!("[1-{first} of 60")), "{text}");
    top.keys("\x1b[B\x1b[B\x1b[A");
    top.wait_until("one further", |it| listed(it).first() == Some(&"e002"));
    top.keys("\x1b[6~");
    top.wait_until("a page further", |it| {
        listed(it).first().is_some_and(|it| *it == format!("e{:03}", first + 2))
    });
    top.keys("\x1b[F");
    // The one that is not unowned comes last by state.
    top.wait_until("the end", |it| listed(it).last() == Some(&"e042") && it.contains("-60 of 60"));
    top.keys("\x1b[5~\x1b[H");
    top.wait_until("the beginning", |it| listed(it).first() == Some(&"e001"));
    top.keys("r");
    top.wait_until("reversed", |it| {
        it.contains("by state, reversed") && listed(it).first() == Some(&"e042")
    });
    top.keys("rs");
    top.wait_until("by name", |it| it.contains("by endpoint]") && listed(it)[0] == "e001");
    top.keys("ss");
    top.wait_for("by age]");
    for (filter, found) in [("e04", 10), ("E042", 1), ("vm7", 1), ("new", 1), ("nothing", 0)] {
        top.keys(&format!("/{filter}"));
        top.wait_until(filter, |it| {
            it.contains(&format!("filter: {filter}")) && it.contains(&format!("/{filter}_"))
        });
        top.keys("\r");
        let place = if found == 0 { "none shown".into() } else { format!("of {found},") };
        top.wait_until(&place, |it| it.contains(&place) && it.contains("q quit"));
        top.keys("\x1b");
        top.wait_for("of 60,");
    }
    top.keys("/e0x\x7f42");
    top.wait_for("filter: e042");
    top.keys("\x1b");
    top.wait_without("filter: e042");
    top.keys("p");
    top.wait_for("PAUSED");
    redis.cli(&["DEL", "session:e001"]);
    top.watch(ms(600), |it| assert!(it.contains("of 60,"), "{it}"));
    top.keys("p");
    top.wait_for("of 59,");
    top.keys("?");
    top.wait_for("the other way round");
    top.keys("x");
    top.wait_without("the other way round");
    top.keys("q");
    assert_eq!(top.wait().code(), Some(0));
    top.assert_restored();
}

/// "redraws in place without flicker": the screen is erased once, and what has not changed is not written.
#[test]
fn what_does_not_change_is_not_written_again() {
    let redis = sessions(20);
    let top = top(&redis, &["--refresh=100ms"]);
    top.wait_for("e020");
    let (erased, written) = top.with(|it| (it.erased, it.lines_written));
    let age = |text: &str| text.lines().nth(1).unwrap().to_owned();
    let before = age(&top.text());
    top.watch(ms(2_000), |it| assert_eq!(top.with(|it| it.erased), erased, "{it}"));
    let more = top.with(|it| it.lines_written) - written;
    // Only the line that tells the age of the picture.
    assert!(more <= 25, "{more} lines in two seconds, {before}");
    // It did look all the time, though every picture may have been as old as the one before.
    redis.cli(&["DEL", "session:e020"]);
    top.wait_without("e020");
    top.assert_sound();
}

#[test]
fn without_colours_there_are_none_and_without_a_locale_there_are_plain_signs() {
    let redis = sessions(2);
    let url = format!("--redis={}", redis.url());
    redis.cli(&["SET", "poll:node:vm1-1-aaaaaaaa", "1", "PX", "600000"]);
    redis.cli(&["SET", "poll:lease:e001", "vm1-1-aaaaaaaa", "PX", "600000"]);
    let env = [("NO_COLOR", "1"), ("LC_ALL", "C")];
    let top = Terminal::start_in(&env, &["top", &url], 30, 100);
    let text = top.wait_for("e002");
    assert!(!top.with(|it| it.coloured), "{text}");
    assert!(text.is_ascii() && text.contains("##########"), "{text}");
}

#[test]
fn nothing_that_strangers_left_in_redis_does_anything_to_the_screen() {
    let redis = sessions(2);
    let evil = "vm\x1b[2J-1-\u{9b}\x07\u{7f}";
    redis.cli(&["SET", &format!("poll:node:{evil}"), "heavy", "PX", "600000"]);
    redis.cli(&["SET", "poll:lease:e001", evil, "PX", "600000"]);
    redis.cli(&["HSET", "poll:result:e001", "ok", "0", "error", "\x1b[31m\n\t漢字漢字漢字"]);
    redis.cli(&["SET", "session:\x1b[31mred", "{}"]);
    redis.cli(&["SADD", "poll:drain", "\x1b[2J"]);
    redis.cli(&["XADD", "poll:history", "*", "endpoint", evil, "event", "\x1b[2J"]);
    let top = top(&redis, &[]);
    top.wait_for("\\u{1b}[2J");
    top.wait_for("failed");
    assert_eq!(top.with(|it| it.erased), 2, "by us, at the start");
}

#[test]
fn it_wants_a_terminal_and_a_redis_before_it_draws_anything() {
    let redis = sessions(2);
    let url = format!("--redis={}", redis.url());
    let piped = leasehold_with(&["top", &url], &[("TERM", "xterm")]);
    let said = String::from_utf8_lossy(&piped.stderr);
    assert_eq!((piped.status.code(), piped.stdout.len()), (Some(2), 0), "{said}");
    assert!(said.lines().count() == 1 && said.contains("leasehold status"), "{said}");
    let mut away = Terminal::start(&["top", "--redis=redis://127.0.0.1:1/0"], 24, 200);
    assert_eq!(away.wait().code(), Some(1));
    away.wait_for("cannot connect to redis://127.0.0.1:1/0");
    assert_eq!(away.with(|it| it.erased), 0);
    away.assert_restored();
    let mut dumb = Terminal::start_in(&[("TERM", "dumb")], &["top", &url], 24, 100);
    assert_eq!(dumb.wait().code(), Some(2));
    // For programs it is what status says, once.
    let documents = ["top", "status"].map(|it| {
        let output = leasehold(&[it, "--json", &url]);
        assert_eq!(output.status.code(), Some(0));
        let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
        document["serverTimeMs"] = json!(0);
        document
    });
    assert_eq!(documents[0], documents[1]);
}

/// However often it is asked to look, it leaves Redis alone for nine tenths of the time.
#[test]
fn ten_thousand_endpoints_are_read_for_a_tenth_of_the_time_at_most() {
    let redis = sessions(10_000);
    let top = top(&redis, &["--refresh=1ms", "--store-timeout=10s"]);
    top.wait_for("nobody polls 10000 endpoints");
    let readings = || -> u64 {
        let stats = redis.cli(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|it| it.strip_prefix("cmdstat_time:calls="));
        line.unwrap().split(',').next().unwrap().parse().unwrap()
    };
    let took = |text: &str| -> u64 {
        let line = text.lines().nth(1).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        words[words.len() - 2].parse().unwrap_or_else(|_| panic!("{line}"))
    };
    let (before, began, mut shortest) = (readings(), Instant::now(), u64::MAX);
    top.watch(ms(6_000), |it| shortest = shortest.min(took(it)));
    let n = readings() - before;
    println!("{n} readings of {shortest} ms at the least in {:?}", began.elapsed());
    // A reading that took longer, on a machine that stood still, is the only one so far.
    assert!(n > 0 || shortest > 400, "nothing was read again after {shortest} ms");
    assert!(n.saturating_sub(1) * shortest * 10 <= 6_000 + 1_000, "{n} readings of {shortest} ms");
    top.assert_sound();
}
