//! How are numbers written so that Prometheus can read them? The text exposition format, version 0.0.4.

use std::fmt::Write;

/// A document: families in the order they were put, each with its help and its type once.
#[derive(Debug, Default)]
pub struct Text {
    out: String,
    /// A label that every sample has, behind its own.
    common: Option<(&'static str, String)>,
}

/// What a family's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the process ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets, a sum and a count.
    Histogram,
}

impl Text {
    /// A document in which every sample has this label, too.
    pub fn with_label(label: &'static str, value: String) -> Self {
        Self { out: String::new(), common: Some((label, value)) }
    }

    /// Begins a family. Its samples follow; a family without any says nothing but that it exists.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String cannot fail.
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family { text: &mut self.out, common: self.common.as_ref(), name: name.into() }
    }

    /// A family of one gauge.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, Kind::Gauge, help).sample("", &[], value);
    }

    /// The document.
    pub fn into_string(self) -> String {
        self.out
    }
}

/// A family that is being written.
pub struct Family<'a> {
    text: &'a mut String,
    common: Option<&'a (&'static str, String)>,
    name: String,
}

impl Family<'_> {
    /// One sample; `suffix` is `_bucket` and the like.
    pub fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        let common = self.common.map(|it| (it.0, it.1.as_str()));
        let mut open = '{';
        for (label, of) in labels.iter().copied().chain(common) {
            let of = of.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{open}{label}=\"{of}\"");
            open = ',';
        }
        let close = if open == '{' { "" } else { "}" };
        // Rust prints the shortest digits that mean the same number, and never an exponent.
        let _ = writeln!(self.text, "{close} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_line_or_a_label_is_escaped() {
        let mut text = Text::default();
        let mut family = text.family("x", Kind::Gauge, "a \\ b\nc \"d\"");
        family.sample("", &[("l", "q\"b\\n\nz"), ("m", "ü")], 0.5);
        assert_eq!(
            text.into_string(),
            "# HELP x a \\\\ b\\nc \"d\"\n# TYPE x gauge\nx{l=\"q\\\"b\\\\n\\nz\",m=\"ü\"} 0.5\n"
        );
    }

    #[test]
    fn large_and_small_numbers_keep_their_digits() {
        let mut text = Text::default();
        text.gauge("x", "h", 1_794_821_396_734_921.0);
        text.gauge("y", "h", 0.000_001);
        let text = text.into_string();
        assert!(
            text.contains("\nx 1794821396734921\n") && text.contains("\ny 0.000001\n"),
            "{text}"
        );
    }
}
