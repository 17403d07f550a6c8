//! What did some work cost: on the clock, in the server's CPU, in ours?

use std::io;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use nix::time::{ClockId, clock_gettime};
use redis::Connection;

/// Microseconds for each of what was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub clock: f64,
    pub server: f64,
    pub client: f64,
}

impl Cost {
    pub fn mean(costs: &[Self]) -> Self {
        let n = f64::from(u32::try_from(costs.len().max(1)).unwrap_or(u32::MAX));
        let mean = |of: fn(&Self) -> f64| costs.iter().map(of).sum::<f64>() / n;
        Self {
            clock: mean(|it| it.clock),
            server: mean(|it| it.server),
            client: mean(|it| it.client),
        }
    }
}

/// Measures by a connection on which nothing else is asked.
pub struct Meter(pub Connection);

impl Meter {
    /// What `work` costs for each of `n`.
    pub fn cost(&mut self, n: usize, work: impl FnOnce() -> io::Result<()>) -> io::Result<Cost> {
        let n = f64::from(u32::try_from(n).map_err(io::Error::other)?);
        let server = self.server_seconds()?;
        let (client, began) = (process_cpu()?, BootClock.now());
        work()?;
        let clock = BootClock.now().since(began);
        let client = process_cpu()?.saturating_sub(client);
        let server = self.server_seconds()? - server;
        let each = |seconds: f64| seconds * 1e6 / n;
        Ok(Cost {
            clock: each(clock.as_secs_f64()),
            server: each(server),
            client: each(client.as_secs_f64()),
        })
    }

    /// Seconds of CPU that the server has spent.
    pub fn server_seconds(&mut self) -> io::Result<f64> {
        let info = self.info("cpu")?;
        let seconds = |name| field(&info, name).and_then(|it| it.parse::<f64>().ok());
        let sum = seconds("used_cpu_user").zip(seconds("used_cpu_sys")).map(|it| it.0 + it.1);
        sum.ok_or_else(|| io::Error::other("the server does not tell its CPU"))
    }

    /// Seconds for which the server could have run, and had no core.
    pub fn server_waited(&mut self) -> io::Result<f64> {
        let info = self.info("server")?;
        let id = field(&info, "process_id").unwrap_or_default();
        let waited = std::fs::read_to_string(format!("/proc/{id}/schedstat"))?;
        let nanos = waited.split(' ').nth(1).and_then(|it| it.parse::<f64>().ok());
        nanos.map(|it| it / 1e9).ok_or_else(|| io::Error::other("this kernel has no schedstat"))
    }

    /// Bytes that the server's data takes.
    pub fn memory(&mut self) -> io::Result<f64> {
        self.number("memory", "used_memory")
    }

    /// Commands that the server has carried out, and bytes that it has received and sent.
    pub fn traffic(&mut self) -> io::Result<[f64; 3]> {
        let names = ["total_commands_processed", "total_net_input_bytes", "total_net_output_bytes"];
        let info = self.info("stats")?;
        let number = |name| field(&info, name).and_then(|it| it.parse().ok());
        Ok(names.map(|it| number(it).unwrap_or(f64::NAN)))
    }

    pub fn number(&mut self, section: &str, name: &str) -> io::Result<f64> {
        let number = field(&self.info(section)?, name).and_then(|it| it.parse().ok());
        number.ok_or_else(|| io::Error::other(format!("the server does not tell its {name}")))
    }

    /// Which Redis this is.
    pub fn version(&mut self) -> io::Result<String> {
        Ok(field(&self.info("server")?, "redis_version").unwrap_or("of no version").into())
    }

    fn info(&mut self, section: &str) -> io::Result<String> {
        redis::cmd("INFO").arg(section).query(&mut self.0).map_err(io::Error::other)
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// CPU of this process.
pub fn process_cpu() -> io::Result<Duration> {
    cpu(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU of the thread that asks.
pub fn thread_cpu() -> io::Result<Duration> {
    cpu(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn cpu(clock: ClockId) -> io::Result<Duration> {
    Ok(clock_gettime(clock)?.into())
}

/// Ticks for which the cores of this machine had nothing to do, and all ticks.
pub fn idle() -> io::Result<[f64; 2]> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let ticks = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    // The last two, of guests, are in the first two already.
    let ticks: Vec<f64> = ticks.take(8).filter_map(|it| it.parse().ok()).collect();
    let idle = ticks.get(3).ok_or_else(|| io::Error::other("this kernel tells no idle time"))?;
    Ok([*idle, ticks.iter().sum()])
}
