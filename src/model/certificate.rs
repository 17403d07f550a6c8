//! From when until when is a certificate valid? Reads these fields of X.509 from bytes that a stranger sent, and nothing else.
//!
//! Whom the certificate is believed for is decided by rustls. This reader never allocates by a length that it read, and every
//! loop ends with its input.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const DAY_S: i64 = 86_400;

/// What a certificate says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The first second in which it is valid, since 1970.
    pub not_before_s: i64,
    /// The last one.
    pub not_after_s: i64,
    /// It names itself as its authority.
    pub is_self_signed: bool,
}

/// How long the certificate of an endpoint is valid yet, as its last poll saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateLeft {
    /// Whole days, rounded down: 0 on the last day, negative when it has expired.
    pub days: i64,
    /// Fewer than the session or the instance wants.
    pub is_short: bool,
}

impl CertificateLeft {
    /// From what a result has of it. Nothing without TLS, or of an older version.
    pub fn told(days: Option<String>, is_short: Option<u64>) -> Option<Self> {
        Some(Self { days: days?.parse().ok()?, is_short: is_short == Some(1) })
    }
}

impl Certificate {
    /// Reads the DER encoding of a certificate; `None` if it is none.
    pub fn parse(der: &[u8]) -> Option<Self> {
        let (certificate, _) = element(der, SEQUENCE)?;
        let (body, _) = element(certificate, SEQUENCE)?;
        // Only version 1 has no version.
        let body = element(body, VERSION).map_or(body, |it| it.1);
        let (_serial, rest) = element(body, INTEGER)?;
        let (_algorithm, rest) = element(rest, SEQUENCE)?;
        let (issuer, rest) = element(rest, SEQUENCE)?;
        let (validity, rest) = element(rest, SEQUENCE)?;
        let (subject, _) = element(rest, SEQUENCE)?;
        let (not_before_s, rest) = time(validity)?;
        let (not_after_s, _) = time(rest)?;
        Some(Self { not_before_s, not_after_s, is_self_signed: issuer == subject })
    }

    /// Whole days from `now_s` to its end.
    pub fn days_left(&self, now_s: i64) -> i64 {
        (self.not_after_s - now_s).div_euclid(DAY_S)
    }

    /// Whether it is valid at `now_s`.
    pub fn is_valid_at(&self, now_s: i64) -> bool {
        (self.not_before_s..=self.not_after_s).contains(&now_s)
    }
}

/// The contents of the element at the beginning of `bytes`, which must have this tag, and what follows the element.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |sum, it| (sum << 8) | usize::from(*it)), rest)
        }
        // Indefinite, or 16 MiB and more.
        _ => return None,
    };
    rest.split_at_checked(length).filter(|_| found == tag)
}

/// The time at the beginning of `bytes`, in seconds since 1970, and what follows it.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (year, text, rest) = match element(bytes, UTC_TIME) {
        Some((text, rest)) => {
            let (year, text) = number(text, 2)?;
            (if year < 50 { 2_000 + year } else { 1_900 + year }, text, rest)
        }
        None => {
            let (text, rest) = element(bytes, GENERALIZED_TIME)?;
            let (year, text) = number(text, 4)?;
            (year, text, rest)
        }
    };
    let (month, text) = number(text, 2).filter(|it| (1..=12).contains(&it.0))?;
    let (day, text) = number(text, 2).filter(|it| (1..=31).contains(&it.0))?;
    let (hour, text) = number(text, 2).filter(|it| it.0 < 24)?;
    let (minute, text) = number(text, 2).filter(|it| it.0 < 60)?;
    let (second, text) = number(text, 2).filter(|it| it.0 < 60)?;
    let seconds = days_since_1970(year, month, day) * DAY_S + hour * 3_600 + minute * 60 + second;
    (text == b"Z").then_some((seconds, rest))
}

/// The number that this many digits make.
fn number(text: &[u8], digits: usize) -> Option<(i64, &[u8])> {
    let (digits, rest) = text.split_at_checked(digits)?;
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| (digits.iter().fold(0, |sum, it| sum * 10 + i64::from(it - b'0')), rest))
}

/// In the Gregorian calendar, years counted from March so that a leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month < 3 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

const PEM_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const PEM_END: &str = "-----END CERTIFICATE-----";

/// The DER encodings of all certificates in a PEM text; `None` unless there is one and all of them can be read. Text
/// between certificates is allowed, as in the bundles that tools write.
pub fn certificates_in(pem: &str) -> Option<Vec<Vec<u8>>> {
    let mut parts = pem.split(PEM_BEGIN);
    parts.next()?;
    let found: Option<Vec<Vec<u8>>> = parts
        .map(|it| base64(it.split_once(PEM_END)?.0).filter(|it| Certificate::parse(it).is_some()))
        .collect();
    found.filter(|it| !it.is_empty())
}

/// What the digits stand for; white space is passed over.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|it| !it.is_ascii_whitespace()).collect();
    let digits = digits.strip_suffix(b"==").or(digits.strip_suffix(b"=")).unwrap_or(&digits);
    let (mut bytes, mut bits, mut n_bits) = (Vec::with_capacity(digits.len() * 3 / 4), 0_u32, 0);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 & 0xffff) | u32::from(value);
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            bytes.push(bits.checked_shr(n_bits)?.to_le_bytes()[0]);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = include_str!("../../tests/it/store/certificates/server.pem");
    const EXPIRED: &str = include_str!("../../tests/it/store/certificates/expired.pem");
    const CA: &str = include_str!("../../tests/it/store/certificates/ca.pem");

    fn read(pem: &str) -> Certificate {
        Certificate::parse(&certificates_in(pem).unwrap()[0]).unwrap()
    }

    #[test]
    fn dates_are_those_that_openssl_reads() {
        // openssl x509 -noout -dates, date -d … +%s
        for (pem, not_before_s, not_after_s, is_self_signed) in [
            (SERVER, 1_794_848_405, 4_948_448_405, false),
            (EXPIRED, 1_577_836_800, 1_577_923_200, false),
            (CA, 1_794_848_405, 4_948_448_405, true),
        ] {
            assert_eq!(read(pem), Certificate { not_before_s, not_after_s, is_self_signed });
        }
        let bundle = format!("the first\n{CA}\nthe second\n{SERVER}");
        assert_eq!(certificates_in(&bundle).unwrap().len(), 2);
    }

    #[test]
    fn times_are_counted_from_1970() {
        let utc = |text: &str| time(&[&[UTC_TIME, 13], text.as_bytes()].concat()).map(|it| it.0);
        let general =
            |text: &str| time(&[&[GENERALIZED_TIME, 15], text.as_bytes()].concat()).map(|it| it.0);
        assert_eq!(utc("700101000000Z"), Some(0));
        assert_eq!(utc("691231235959Z"), Some(-1));
        assert_eq!(utc("240229120000Z"), Some(1_709_208_000));
        assert_eq!(utc("491231235959Z"), Some(2_524_607_999));
        assert_eq!(general("20500101000000Z"), Some(2_524_608_000));
        assert_eq!(general("99991231235959Z"), Some(253_402_300_799));
        assert_eq!(general("20000301000000Z"), Some(951_868_800));
        for text in ["241301000000Z", "240001000000Z", "240100000000Z", "240101240000Z"]
            .into_iter()
            .chain(["240101006000Z", "240101000060Z", "240101000000+", "2401010000:0Z"])
        {
            assert_eq!(utc(text), None, "{text}");
        }
    }

    #[test]
    fn days_are_counted_down_to_the_last_second() {
        let it = Certificate { not_before_s: 0, not_after_s: 10 * DAY_S, is_self_signed: false };
        for (now_s, days) in
            [(0, 10), (1, 9), (9 * DAY_S, 1), (10 * DAY_S, 0), (10 * DAY_S + 1, -1)]
        {
            assert_eq!(it.days_left(now_s), days, "{now_s}");
        }
        assert!(it.is_valid_at(0) && it.is_valid_at(10 * DAY_S));
        assert!(!it.is_valid_at(-1) && !it.is_valid_at(10 * DAY_S + 1));
    }

    /// Whatever a stranger sends: an answer, without a panic and without much memory.
    #[test]
    fn hostile_bytes_are_no_certificate() {
        let der = certificates_in(SERVER).unwrap().remove(0);
        for cut in 0..der.len() {
            assert_eq!(Certificate::parse(&der[..cut]), None, "the first {cut} bytes");
        }
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let mut understood = 0;
        for _ in 0..200_000 {
            let mut spoilt = der.clone();
            for _ in 0..=random() % 4 {
                let (at, byte) = (random() % 200, random().to_le_bytes()[0]);
                spoilt[usize::try_from(at).unwrap()] = byte;
            }
            if let Some(it) = Certificate::parse(&spoilt) {
                understood += 1;
                // No year has more than four digits.
                assert!(
                    it.not_after_s.abs() < 300_000_000_000 && it.not_before_s >= -70_000_000_000
                );
            }
        }
        assert!(understood > 1_000, "{understood}");
        for bytes in [&[][..], &[SEQUENCE], &[SEQUENCE, 0x80], &[SEQUENCE, 0x83, 255, 255, 255]]
            .into_iter()
            .chain([&[SEQUENCE, 0x84, 255, 255, 255, 255][..], &[SEQUENCE, 0xff], &[0; 64]])
        {
            assert_eq!(Certificate::parse(bytes), None, "{bytes:?}");
        }
        let deep: Vec<u8> = std::iter::repeat_n([SEQUENCE, 0x7f], 100_000).flatten().collect();
        assert_eq!(Certificate::parse(&deep), None);
    }

    #[test]
    fn a_text_without_a_whole_certificate_is_none() {
        let cut = &CA[..CA.len() / 2];
        let spoilt = CA.replacen("MII", "M!I", 1).replacen("MIIB", "M!IB", 1);
        let empty = format!("{PEM_BEGIN}\n{PEM_END}\n");
        let one_of_two = format!("{CA}{empty}");
        for text in ["", "no certificate", cut, &spoilt, &empty, &one_of_two, PEM_BEGIN] {
            assert_eq!(certificates_in(text), None, "{text}");
        }
        assert_eq!(base64("aGVsbG8=").unwrap(), b"hello");
        assert_eq!(base64("aGVs\nbG8h IQ==").unwrap(), b"hello!!");
        assert_eq!(base64("aGVsbG8-"), None);
    }
}
