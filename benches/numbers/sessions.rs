//! Sessions that are there, and next to never polled: the polls are not what is measured.

use std::io;

use redis::Connection;

use testkit::bench::holder;

/// Stores sessions of so many endpoints, each polled once a day.
pub(crate) fn put_sessions(line: &mut Connection, n: u32) -> io::Result<()> {
    for batch in holder::endpoints(0..n)?.chunks(1_000) {
        let mut pipe = redis::pipe();
        for id in batch {
            let session =
                format!(r#"{{"id":"{id}","address":"127.0.0.1:9","intervalMs":86400000}}"#);
            pipe.cmd("SET").arg(format!("session:{id}")).arg(session).ignore();
        }
        pipe.exec(line).map_err(io::Error::other)?;
    }
    Ok(())
}
