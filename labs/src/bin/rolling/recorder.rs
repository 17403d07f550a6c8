//! Whether the judge itself is fast enough: what it cannot take would look like a late poll.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::{ENDPOINTS, INTERVAL};
use testkit::bounds::Verdict;
use testkit::measure::Measured;
use testkit::process::ms;
use testkit::target::Target;

/// Next to what is asked of it: 10,000 endpoints every 10 s are 1,000 polls a second.
const CLIENTS: usize = 4;
const FOR: Duration = Duration::from_secs(3);

/// Polls as fast as it can, from a few threads, as pollers do: a connection each.
pub(crate) fn keeps_up(verdict: &mut Verdict) {
    let target = Target::start();
    let until = Instant::now() + FOR;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let address = target.address();
            std::thread::spawn(move || {
                let mut times = Vec::new();
                while Instant::now() < until {
                    times.push(poll(&address, client));
                }
                times
            })
        })
        .collect();
    let mut times = Measured::new("recorder, connect to answer, as fast as it goes");
    for took in clients.into_iter().flat_map(|it| it.join().unwrap()) {
        times.add(took, Duration::ZERO, "a poll");
    }
    let wanted = ENDPOINTS as f64 / INTERVAL.as_secs_f64();
    let rate = times.len() as f64 / FOR.as_secs_f64();
    verdict.within(&times, ms(250));
    verdict.at_most("recorder, share of what it can take that is asked of it", wanted / rate, 0.5);
    verdict.sound(&target);
}

fn poll(address: &str, client: usize) -> Duration {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "GET /e{client} HTTP/1.1\r\nX-Leasehold-Instance: it\r\nX-Leasehold-Fence: 1\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    began.elapsed()
}
