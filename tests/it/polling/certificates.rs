//! Which certificates polls believe, why not, and how long they last: certificates and servers of openssl, real processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use leasehold::lease::testing::permit_for_tests;
use leasehold::polling::http::Trust;
use leasehold::polling::net_poller::NetPoller;
use leasehold::polling::targets::Targets;
use leasehold::{Poller, Sample, Session};
use serde_json::{Value, json};

use testkit::fake::Fake;
use testkit::process::{Instance, SOON, Scene, TempDir, eventually, leasehold, ms, run};
use testkit::redis::RedisServer;

/// For `openssl ca`, which is the command that takes dates.
const SETTINGS: &str = "[ca]\ndefault_ca=d\n[d]\nnew_certs_dir=.\ndatabase=index\ndefault_md=sha256\n\
     policy=p\ncopy_extensions=copy\nunique_subject=no\nrand_serial=yes\n[p]\ncommonName=optional\n";
const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
const LOOPBACK: &str = "subjectAltName=IP:127.0.0.1";

/// A directory with certificates and their keys, and the authority `ca`.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Self {
        let it = Self(TempDir::new());
        fs::write(it.path("settings"), SETTINGS).unwrap();
        fs::write(it.path("index"), "").unwrap();
        it.self_signed_authority("ca", "CN=a test");
        it
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.pem"))).unwrap()
    }

    fn openssl(&self, args: &[&str]) {
        let mut openssl = Command::new("openssl");
        let output = openssl.args(args).current_dir(self.0.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {args:?}: {said}");
    }

    /// As `openssl req -x509` makes it: its own authority.
    fn self_signed_authority(&self, name: &str, subject: &str) {
        let (pem, key, subject) =
            (format!("{name}.pem"), format!("{name}.key"), format!("/{subject}"));
        let args = ["req", "-x509", "-keyout", &key, "-out", &pem, "-subj", &subject];
        self.openssl(&[&args[..], &["-addext", LOOPBACK], &KEY].concat());
    }

    /// Signed by `ca`, or by itself, valid between these two days, counted from now.
    fn issue(&self, name: &str, alternative: &str, days: (i64, i64), is_self_signed: bool) {
        let [pem, key, request] = ["pem", "key", "csr"].map(|it| format!("{name}.{it}"));
        let args = ["req", "-keyout", &key, "-out", &request, "-subj", "/CN=x"];
        self.openssl(&[&args[..], &["-addext", alternative], &KEY].concat());
        let signer: &[&str] = match is_self_signed {
            true => &["-selfsign", "-keyfile", &key],
            false => &["-cert", "ca.pem", "-keyfile", "ca.key"],
        };
        let [from, to] = [days.0, days.1].map(date);
        let args = ["ca", "-batch", "-notext", "-config", "settings", "-in", &request];
        let dates = ["-out", &pem, "-startdate", &from, "-enddate", &to];
        self.openssl(&[&args[..], &dates, signer].concat());
    }
}

/// This many days from now, and an hour, so that no test has to hurry.
fn date(days: i64) -> String {
    let mut date = Command::new("date");
    let hour = if days < 0 { "-1 hour" } else { "1 hour" };
    date.args(["-u", "-d", &format!("{days} days {hour}"), "+%y%m%d%H%M%SZ"]);
    String::from_utf8(date.output().unwrap().stdout).unwrap().trim().to_owned()
}

/// A server that shows a certificate, and answers every request with a page.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn showing(certificates: &Certificates, name: &str) -> Self {
        Self::on("0", certificates, name, &[])
    }

    fn on(port: &str, certificates: &Certificates, name: &str, options: &[&str]) -> Self {
        let [pem, key] = ["pem", "key"].map(|it| format!("{name}.{it}"));
        let mut server = Command::new("openssl");
        server.args(["s_server", "-www", "-accept", &format!("127.0.0.1:{port}")]);
        server.args(["-cert", &pem, "-key", &key]).args(options);
        server.current_dir(certificates.0.path()).stdin(Stdio::null());
        server.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = server.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.by_ref().map_while(Result::ok).find(|it| it.starts_with("ACCEPT"));
        let said = said.expect("the server ended");
        // It names the port only if it chose that itself.
        let port = said.rsplit_once(':').map_or(port, |it| it.1).to_owned();
        // What it says from now on is read, so that it can go on.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }

    fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn trusting(certificates: &Certificates, names: &[&str]) -> Trust {
    let pem: String = names.iter().map(|it| certificates.text(it)).collect();
    let authorities = leasehold::model::certificates_in(&pem).unwrap_or_default();
    Trust { authorities, allows_insecure: false, warn_days: 14 }
}

fn poller(trust: Trust) -> NetPoller {
    NetPoller::new(Targets::default(), 65_536).with_access(trust, None)
}

fn poll(address: &str, trust: Trust, fields: Value) -> Sample {
    poll_by(&poller(trust), address, fields)
}

fn poll_by(poller: &NetPoller, address: &str, fields: Value) -> Sample {
    let mut session = json!({"id": "e1", "address": address});
    session.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let session = Session::parse("e1", session.to_string().as_bytes()).unwrap();
    let (permit, _revoke) = permit_for_tests("e1", "vm-1", 7);
    poller.poll(&session, &permit, ms(10_000)).unwrap()
}

#[track_caller]
fn assert_believed(sample: &Sample) {
    assert_eq!((sample.ok, sample.status, &sample.error), (true, Some(200), &None));
}

#[track_caller]
fn assert_refused(sample: &Sample, server: &Server, host: &str, why: &str) {
    let error = format!("no TLS with {host}:{}: {why}", server.port);
    assert_eq!((sample.ok, sample.error.as_deref()), (false, Some(&*error)));
}

const SELF_SIGNED: &str = "the certificate is self-signed: name it in tlsCa or --poll-ca";
const UNKNOWN: &str = "an unknown authority signed the certificate: name it in tlsCa or --poll-ca";

#[test]
fn a_certificate_that_is_not_believed_is_a_sentence() {
    let all = Certificates::new();
    all.self_signed_authority("other-ca", "CN=another test");
    all.issue("good", LOOPBACK, (-10, 10), false);
    all.issue("expired", LOOPBACK, (-10, -3), false);
    all.issue("early", LOOPBACK, (2, 10), false);
    all.issue("other", "subjectAltName=DNS:other.example,DNS:*.b.example", (-10, 10), false);
    all.issue("self", LOOPBACK, (-10, 10), true);
    for (name, why) in [
        ("self", SELF_SIGNED),
        ("other-ca", SELF_SIGNED),
        ("expired", "the certificate expired 3 days ago"),
        ("early", "the certificate is not valid yet, but only in 2 days"),
        ("other", "the certificate is for other.example and *.b.example, and not for 127.0.0.1"),
    ] {
        let server = Server::showing(&all, name);
        let sample = poll(&server.address(), trusting(&all, &["ca"]), json!({}));
        assert_refused(&sample, &server, "127.0.0.1", why);
    }
    let server = Server::showing(&all, "good");
    assert_refused(
        &poll(&server.address(), trusting(&all, &[]), json!({})),
        &server,
        "127.0.0.1",
        UNKNOWN,
    );
    let by_name = server.address().replace("127.0.0.1", "localhost");
    let why = "the certificate is for 127.0.0.1, and not for localhost";
    let sample = poll(&by_name, trusting(&all, &["ca"]), json!({}));
    assert_refused(&sample, &server, "localhost", why);
}

#[test]
fn an_endpoint_that_speaks_no_tls_or_an_old_one_is_a_sentence() {
    let all = Certificates::new();
    all.issue("good", LOOPBACK, (-10, 10), false);
    let plain = Fake::serving(|mut stream| drop(stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n")));
    let sample =
        poll(&format!("https://127.0.0.1:{}", plain.port), trusting(&all, &["ca"]), json!({}));
    let error = sample.error.unwrap();
    assert!(error.ends_with(": the endpoint does not speak TLS there"), "{error}");
    let old = Server::on("0", &all, "good", &["-tls1_2"]);
    assert_believed(&poll(&old.address(), trusting(&all, &["ca"]), json!({})));
    let asking = Server::on("0", &all, "good", &["-Verify", "1", "-tls1_2"]);
    let sample = poll(&asking.address(), trusting(&all, &["ca"]), json!({}));
    let why = "the endpoint refused: it may ask for a certificate of ours, and polls have none";
    assert_refused(&sample, &asking, "127.0.0.1", why);
}

#[test]
fn private_authorities_are_believed_beside_the_public_ones_or_alone_for_a_session() {
    let all = Certificates::new();
    all.self_signed_authority("other-ca", "CN=another test");
    all.issue("good", LOOPBACK, (-10, 10), false);
    let server = Server::showing(&all, "good");
    let poll = |trusted: &[&str], fields| poll(&server.address(), trusting(&all, trusted), fields);
    assert_believed(&poll(&["ca"], json!({})));
    assert_believed(&poll(&["other-ca", "ca"], json!({})));
    assert_believed(&poll(&[], json!({"tlsCa": all.text("ca")})));
    let both = all.text("other-ca") + &all.text("ca");
    assert_believed(&poll(&[], json!({"tlsCa": both})));
    // A session says whom it believes, whatever the instance believes.
    let sample = poll(&["ca"], json!({"tlsCa": all.text("other-ca")}));
    assert_refused(&sample, &server, "127.0.0.1", UNKNOWN);
}

/// What `openssl req -x509` makes is an authority, and rustls takes none for the certificate of an endpoint.
#[test]
fn a_self_signed_certificate_that_is_named_is_believed_for_its_name_and_its_time() {
    let all = Certificates::new();
    all.self_signed_authority("one", "CN=one");
    all.self_signed_authority("two", "CN=one");
    all.issue("expired", LOOPBACK, (-10, -3), true);
    let server = Server::showing(&all, "one");
    let with = |name: &str| json!({"tlsCa": all.text(name)});
    assert_believed(&poll(&server.address(), trusting(&all, &[]), with("one")));
    assert_believed(&poll(&server.address(), trusting(&all, &["one"]), json!({})));
    // The same subject, another key.
    let sample = poll(&server.address(), trusting(&all, &[]), with("two"));
    assert!(!sample.ok, "{sample:?}");
    let by_name = server.address().replace("127.0.0.1", "localhost");
    let why = "the certificate is for 127.0.0.1, and not for localhost";
    assert_refused(&poll(&by_name, trusting(&all, &[]), with("one")), &server, "localhost", why);
    let server = Server::showing(&all, "expired");
    let sample = poll(&server.address(), trusting(&all, &[]), with("expired"));
    assert_refused(&sample, &server, "127.0.0.1", "the certificate expired 3 days ago");
}

#[test]
fn a_session_without_proof_is_polled_only_where_the_instance_allows_it() {
    let all = Certificates::new();
    all.issue("expired", "subjectAltName=DNS:other.example", (-10, -3), true);
    let server = Server::showing(&all, "expired");
    let insecure = || json!({"tlsInsecure": true});
    let sample = poll(&server.address(), Trust::default(), insecure());
    let why = "the session has tlsInsecure, which this instance does not allow: leave it out, or start the \
               instances with --allow-tls-insecure";
    assert_refused(&sample, &server, "127.0.0.1", why);
    let allowing = || Trust { allows_insecure: true, ..Trust::default() };
    assert_believed(&poll(&server.address(), allowing(), insecure()));
    // Only the sessions that ask for it.
    let sample = poll(&server.address(), allowing(), json!({}));
    assert_refused(&sample, &server, "127.0.0.1", "the certificate expired 3 days ago");
}

/// A resumed session would show the certificate of an earlier poll, and an exchanged one would not be noticed.
#[test]
fn each_poll_sees_the_certificate_anew() {
    let all = Certificates::new();
    all.issue("good", LOOPBACK, (-10, 10), false);
    let poller = poller(trusting(&all, &["ca"]));
    for version in ["-tls1_3", "-tls1_2"] {
        let server = Server::on("0", &all, "good", &[version]);
        for _ in 0..3 {
            let sample = poll_by(&poller, &server.address(), json!({}));
            assert_believed(&sample);
            let page = String::from_utf8_lossy(&sample.body);
            assert!(page.contains("New, TLS") && !page.contains("Reused, "), "{version}: {page}");
        }
    }
}

fn status(scene: &Scene) -> Value {
    let output = run(&scene.redis, &["status", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Log, result, channel, `status` and `explain`; then the certificate is renewed while everything runs.
#[test]
fn a_certificate_that_ends_soon_is_told_once_and_shown_until_it_is_renewed() {
    let all = Certificates::new();
    all.issue("short", LOOPBACK, (-10, 9), false);
    all.issue("long", LOOPBACK, (-10, 90), false);
    let scene = Scene::new(1);
    let server = Server::showing(&all, "short");
    let address = json!({"address": server.address(), "intervalMs": 100});
    scene.put_session("web1", address.clone());
    let mut patient = address;
    patient.as_object_mut().unwrap().insert("certWarnDays".into(), 5.into());
    scene.put_session("web2", patient);
    let ca = format!("--poll-ca={}", all.path("ca.pem").display());
    let one = scene.first(&[&ca]);
    let line = one.wait_for("event=endpoint.cert_expiring");
    assert!(line.contains(" WARN ") && line.contains("endpoint=web1 days=9"), "{line}");
    let days = |id: &str| scene.result(id).get("cert_days").cloned().unwrap_or_default();
    let shown = || format!("{:?} {:?}", scene.result("web1"), one.log());
    let is_polled = || scene.result("e1").contains_key("ok");
    eventually(SOON, "results", shown, || {
        days("web1") == "9" && days("web2") == "9" && is_polled()
    });
    assert_eq!(scene.result("web1")["cert_expiring"], "1");
    assert_eq!(scene.result("web2")["cert_expiring"], "0");
    assert_eq!(scene.result("e1").get("cert_days").map(String::as_str), Some(""), "no TLS");
    let found = status(&scene);
    let verdict = found["verdict"].as_str().unwrap().to_owned();
    assert!(verdict.contains(" The certificate of web1 ends in 9 days."), "{verdict}");
    assert_eq!((&found["certExpiring"], &found["healthy"]), (&json!(["web1"]), &json!(false)));
    let web1 =
        &found["endpoints"].as_array().unwrap().iter().find(|it| it["id"] == "web1").unwrap();
    let last = &web1["lastResult"];
    assert_eq!((&last["certDays"], &last["certExpiring"]), (&json!(9), &json!(true)));
    let told = run(&scene.redis, &["explain", "web1"]);
    let told = String::from_utf8_lossy(&told.stdout);
    assert!(told.contains("Its certificate ends in 9 days: renew it."), "{told}");

    let port = server.port.clone();
    drop(server);
    let _server = Server::on(&port, &all, "long", &[]);
    let line = one.wait_for("event=endpoint.cert_renewed");
    assert!(line.contains(" INFO ") && line.contains("endpoint=web1 days=90"), "{line}");
    eventually(SOON, "the new days", shown, || days("web1") == "90");
    eventually(
        SOON,
        "all well",
        || status(&scene).to_string(),
        || status(&scene)["certExpiring"] == json!([]),
    );
    assert_eq!(one.lines(&["endpoint.cert_expiring"]).len(), 1, "{:?}", one.log());
    assert_eq!(one.lines(&["endpoint.cert_renewed"]).len(), 1, "{:?}", one.log());
}

#[test]
fn authorities_and_secrets_that_are_not_there_end_a_start() {
    let dir = TempDir::new();
    let junk = dir.path().join("junk.pem");
    fs::write(&junk, "no certificate").unwrap();
    let redis = RedisServer::start();
    let url = format!("--redis={}", redis.url());
    for (option, why) in [
        ("--poll-ca=/nowhere/ca.pem".to_owned(), "cannot read --poll-ca \"/nowhere/ca.pem\""),
        (format!("--poll-ca={}", junk.display()), "holds no certificate that can be used"),
        ("--secrets-dir=/nowhere".to_owned(), "cannot read --secrets-dir \"/nowhere\""),
        ("--cert-warn-days=4000".to_owned(), "--cert-warn-days"),
    ] {
        let output = leasehold(&["run", &url, &option]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{option}: {said}");
        assert!(said.contains(why), "{option}: {said}");
    }
}

/// A server that keeps the value of X-Key that it was sent last.
fn keeper(file: &Path) -> Fake {
    let file = file.to_owned();
    Fake::serving(move |stream| {
        let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let key = lines.by_ref().take_while(|it| !it.is_empty()).find(|it| it.starts_with("X-Key"));
        fs::write(&file, key.unwrap_or_default()).unwrap();
        let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    })
}

fn is_told(one: &Instance, secret: &str) -> bool {
    one.log().iter().any(|it| it.contains(secret))
}

/// FR: a secret is in a file of the host. It is sent, and neither logged nor stored.
#[test]
fn a_secret_header_is_read_from_its_file_at_each_poll() {
    let (scene, dir) = (Scene::new(1), TempDir::new());
    let (secrets, kept) = (dir.path().join("secrets"), dir.path().join("kept"));
    fs::create_dir(&secrets).unwrap();
    let keep = keeper(&kept);
    scene.put_session(
        "web1",
        json!({"address": format!("127.0.0.1:{}", keep.port), "intervalMs": 100,
            "headers": {"X-Key": {"file": "web1-key"}}}),
    );
    let error = |id: &str| scene.result(id).get("error").cloned().unwrap_or_default();
    let told = || format!("{:?} {:?}", scene.result("web1"), fs::read_to_string(&kept));
    let dir = format!("--secrets-dir={}", secrets.display());
    let one = scene.first(&[&dir, "--log-level=trace", "--light-after=1000"]);
    eventually(SOON, "the missing file in words", told, || {
        error("web1")
            == "the header X-Key needs the file web1-key of --secrets-dir, which cannot be read: No such \
                file or directory"
    });
    assert!(!kept.exists(), "nothing is sent without it");
    for secret in ["hunter2", "hunter3"] {
        let next = secrets.join(".next");
        fs::write(&next, format!("{secret}\n")).unwrap();
        fs::rename(&next, secrets.join("web1-key")).unwrap();
        let is_sent = || fs::read_to_string(&kept).is_ok_and(|it| it == format!("X-Key: {secret}"));
        eventually(SOON, "the secret at the endpoint", told, is_sent);
        let is_ok = || scene.result("web1").get("ok").is_some_and(|it| it == "1");
        eventually(SOON, "a good result", told, is_ok);
    }
    fs::write(secrets.join("web1-key"), "hunter4\nHost: b").unwrap();
    eventually(SOON, "a value of two lines", told, || error("web1").contains("holds no value"));
    let stored = scene.redis.cli(&["GET", "session:web1"]) + &format!("{:?}", scene.result("web1"));
    assert!(!stored.contains("hunter") && !is_told(&one, "hunter"), "{stored} {:?}", one.log());
}

/// An author of sessions must not choose among the files of the hosts.
#[test]
fn a_session_names_no_file_outside_of_the_directory_and_none_without_it() {
    let scene = Scene::new(1);
    let with = |file: &str| json!({"headers": {"X-Key": {"file": file}}});
    scene.put_session("path", with("/etc/hostname"));
    scene.put_session("up", with("../hostname"));
    scene.put_session("plain", with("hostname"));
    let one = scene.first(&[]);
    for id in ["path", "up"] {
        one.wait_for_line(SOON, "the session by name", |it| {
            it.contains("event=session.invalid")
                && it.contains(&format!("endpoint={id} "))
                && it.contains("the name of a file in --secrets-dir")
        });
    }
    let error = || scene.result("plain").get("error").cloned().unwrap_or_default();
    eventually(SOON, "the option by name", error, || {
        error()
            == "the header X-Key needs the file hostname, and this instance has no --secrets-dir"
    });
}
