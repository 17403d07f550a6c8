//! How is a moment of the server's clock written? As in the log: UTC, with milliseconds.

const DAY_MS: u64 = 86_400_000;

/// `2026-11-16T00:04:07.123Z`.
pub(crate) fn date_and_time(unix_ms: u64) -> String {
    let (year, month, day) = date(unix_ms / DAY_MS);
    format!("{year:04}-{month:02}-{day:02}T{}.{:03}Z", time(unix_ms), unix_ms % 1_000)
}

/// `00:04:07`.
pub(crate) fn time(unix_ms: u64) -> String {
    let seconds = unix_ms % DAY_MS / 1_000;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Years are counted from March, so that the odd day comes last; 400 of them are 146,097 days.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_in_the_log() {
        for (ms, written) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (1_794_787_447_123, "2026-11-16T00:04:07.123Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(date_and_time(ms), written);
        }
        assert_eq!(time(1_794_787_447_123), "00:04:07");
    }
}
