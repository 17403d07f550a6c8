//! Do commands (`--poll-command`) and pollers of a library user's obey the same pool?
//!
//! A small pool, and a tenth of the endpoints hangs, each in a network of its own: more of them than the slow lane has room
//! for. The command is this program itself: it asks the target and waits for the answer, so that the target sees when each
//! command runs.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::config::RedisUrl;
use leasehold::thread::stop;
use leasehold::{Address, Config, Daemon, PollPermit, Poller, Revoked, Sample, Session};
use testkit::bounds::Verdict;
use testkit::process::Scene;
use testkit::target::{Answer, Door, Request};

use crate::fleet::{DEFAULTS, DELAY, Fleet, TIMEOUT, put_sessions};

/// The first word that makes this program a poll command.
pub(crate) const COMMAND: &str = "poll-command";
const ENDPOINTS: usize = 200;
const HANGING: usize = 20;
const WORKERS: usize = 32;
/// The share of the slow lane, and what may have ended without the target having noticed.
const SLOW_MAX: usize = WORKERS / 2 + 2;
const INTERVAL: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(40);

pub(crate) fn commands(verdict: &mut Verdict) {
    let (scene, door) = scene();
    let this = std::env::current_exe().unwrap();
    let options = [
        format!("--interval={}ms", INTERVAL.as_millis()),
        format!("--workers={WORKERS}"),
        format!("--poll-command={} {COMMAND} {}", this.display(), scene.target.address()),
    ];
    let options = options.iter().map(String::as_str);
    let args: Vec<&str> = DEFAULTS.into_iter().chain(options).collect();
    let instance = scene.first(&args);
    judge(verdict, &Fleet::of(scene, vec![instance], INTERVAL, HANGING));
    drop(door);
}

pub(crate) fn pollers(verdict: &mut Verdict) {
    let (scene, door) = scene();
    let (_source, never) = stop();
    let config = Config {
        redis: RedisUrl::parse(&scene.redis.url()).unwrap(),
        workers: WORKERS,
        interval: INTERVAL,
        timeout: TIMEOUT,
        new_fleet: true,
        ..Config::default()
    };
    let config = config.checked().unwrap();
    let daemon = Daemon::start_redis(&config, Arc::new(Custom), &never).unwrap();
    judge(verdict, &Fleet::of(scene, Vec::new(), INTERVAL, HANGING));
    daemon.stop();
    drop(door);
}

/// Endpoints of which the first [`HANGING`] hang, each in a network of its own.
fn scene() -> (Scene, Door) {
    let mut scene = Scene::new(0);
    let door = scene.target.open("0.0.0.0:0");
    let port = door.address().port();
    scene.endpoints = (1..=ENDPOINTS).map(|n| format!("e{n}")).collect();
    for (n, endpoint) in scene.endpoints.iter().enumerate() {
        let answer = Answer { delay: DELAY, hang: n < HANGING, ..Answer::default() };
        scene.target.answer(endpoint, answer);
    }
    let at = |n: usize| SocketAddr::from(([127, 2, n as u8, 1], port));
    let sessions = scene.endpoints.iter().cloned().zip((0..).map(at));
    put_sessions(&scene, sessions, INTERVAL);
    (scene, door)
}

fn judge(verdict: &mut Verdict, fleet: &Fleet) {
    let target = &fleet.scene.target;
    fleet.wait_until_owned();
    // Then every endpoint has been polled, and the pool knows which are slow.
    target.observe(TIMEOUT + INTERVAL * 2);
    let from = Instant::now();
    fleet.judge(verdict, WINDOW, INTERVAL * 11 / 10);
    let requests = target.requests();
    let hanging: Vec<String> =
        fleet.scene.endpoints[..HANGING].iter().map(|it| format!("/{it}")).collect();
    let is_hanging = |it: &&Request| hanging.contains(&it.path);
    let all = at_a_time(requests.iter());
    let late = requests.iter().filter(|it| it.end.is_none_or(|end| end >= from));
    let slow = at_a_time(late.filter(is_hanging));
    let polled = |path: &&String| {
        requests.iter().any(|it| it.path == **path && it.end.is_none_or(|end| end >= from))
    };
    let polled = hanging.iter().filter(polled).count();
    verdict.say(&format!(
        "at most {all} polls at a time of {WORKERS}; at most {slow} of endpoints that hang, {SLOW_MAX} may; \
         {polled} of {HANGING} endpoints that hang were polled in the window"
    ));
    verdict.hold(all <= WORKERS, &format!("{all} polls at a time, {WORKERS} workers"));
    verdict.hold(slow <= SLOW_MAX, &format!("{slow} slow polls at a time, {SLOW_MAX} may"));
    verdict.hold(polled == HANGING, &format!("{polled} of {HANGING} that hang were polled"));
    verdict.sound(target);
}

/// The most of these polls that ran at the same time.
fn at_a_time<'a>(requests: impl Iterator<Item = &'a Request>) -> usize {
    let mut changes = Vec::new();
    for request in requests {
        changes.push((request.start, 1_isize));
        changes.extend(request.end.map(|end| (end, -1)));
    }
    // At one moment ends come first.
    changes.sort_unstable();
    let mut running = 0_isize;
    let most = changes.iter().map(|(_, change)| {
        running += change;
        running
    });
    most.max().unwrap_or(0).unsigned_abs()
}

/// This program as a poll command: asks the target at the address of the second word about the endpoint.
pub(crate) fn command() -> ExitCode {
    let env = |name: &str| std::env::var(name).unwrap();
    let mut stream = TcpStream::connect(std::env::args().nth(2).unwrap()).unwrap();
    let [endpoint, instance, fence] =
        ["ENDPOINT", "INSTANCE", "FENCE"].map(|it| env(&format!("LEASEHOLD_{it}")));
    let body = ask(&mut stream, &endpoint, &instance, &fence);
    if body.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn ask(stream: &mut TcpStream, endpoint: &str, instance: &str, fence: &str) -> io::Result<Vec<u8>> {
    write!(
        stream,
        "GET /{endpoint} HTTP/1.1\r\nX-Leasehold-Instance: {instance}\r\nX-Leasehold-Fence: {fence}\r\n\r\n"
    )?;
    let mut body = Vec::new();
    stream.read_to_end(&mut body)?;
    Ok(body)
}

/// A poller as a user of the library may write it.
struct Custom;

impl Poller for Custom {
    fn poll(
        &self,
        session: &Session,
        permit: &PollPermit,
        timeout: Duration,
    ) -> Result<Sample, Revoked> {
        let began = Instant::now();
        let Address::Http(url) = &session.address else { unreachable!("the scene stores HTTP") };
        let authority = url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        let connected = TcpStream::connect(authority).and_then(|it| {
            it.set_read_timeout(Some(timeout))?;
            let other = it.try_clone()?;
            permit.abort().arm(move || drop(other.shutdown(Shutdown::Both)));
            Ok(it)
        });
        let tenure = permit.tenure();
        let answer = match connected {
            Err(error) => Err(error),
            Ok(mut stream) => {
                permit.confirm()?;
                let (instance, fence) = (permit.instance().as_str(), tenure.fence.to_string());
                ask(&mut stream, tenure.endpoint.as_str(), instance, &fence)
            }
        };
        if permit.abort().is_fired() {
            return Err(Revoked);
        }
        let duration = began.elapsed();
        Ok(match answer {
            Ok(body) => Sample { ok: true, status: None, error: None, body, duration },
            Err(error) => Sample::failed(error.to_string(), duration),
        })
    }
}
