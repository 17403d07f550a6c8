//! A strict reader of the Prometheus text format: whatever it accepts, Prometheus does.

use std::collections::{BTreeMap, BTreeSet};

/// One sample: its name with the labels as they are written, and its value.
pub type Samples = BTreeMap<String, f64>;

/// A document that was understood.
#[derive(Debug, Default)]
pub struct Document {
    /// `counter`, `gauge` or `histogram`, by family.
    pub kinds: BTreeMap<String, String>,
    /// Without the label `daemon`, which is the same in all of them.
    pub samples: Samples,
    /// The value of that label, as it is written.
    pub daemon: String,
}

/// The label that every series has, behind its others.
const DAEMON: &str = "daemon=\"";

/// The series without its label `daemon`, and the value of that.
fn split(series: &str) -> Option<(String, String)> {
    let (before, value) = series.strip_suffix("\"}")?.rsplit_once(DAEMON)?;
    let others = before.strip_suffix(['{', ','])?;
    let series = if before.ends_with('{') { others.to_owned() } else { format!("{others}}}") };
    Some((series, value.to_owned()))
}

/// What node_exporter makes of several files: one document, by family the daemons that write it. Fails where a
/// series is there twice, or a family is not the same in two files.
pub fn collect(texts: &[&str]) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let (mut all, mut heads, mut seen) =
        (BTreeMap::<String, BTreeSet<String>>::new(), BTreeMap::new(), BTreeSet::new());
    for text in texts {
        let document = Document::parse(text)?;
        for line in text.lines() {
            let mut words = line.splitn(4, ' ');
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some("#"), Some(what), Some(name), rest) => {
                    let head = rest.unwrap_or_default().to_owned();
                    let before = heads.insert((what.to_owned(), name.to_owned()), head.clone());
                    if before.is_some_and(|it| it != head) {
                        return Err(format!("another {what} of {name}: {head}"));
                    }
                }
                _ => {
                    let series = line.rsplit_once(' ').ok_or("no value")?.0;
                    if !seen.insert(series.to_owned()) {
                        return Err(format!("twice: {series}"));
                    }
                }
            }
        }
        for name in document.kinds.keys() {
            all.entry(name.clone()).or_default().insert(document.daemon.replace('\\', ""));
        }
    }
    Ok(all)
}

impl Document {
    /// Understands `text`, or says in which line it is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut document = Self::default();
        let (mut current, mut helped) = (String::new(), BTreeSet::new());
        if !text.ends_with('\n') {
            return Err("the last line does not end".into());
        }
        for line in text.lines() {
            let wrong = |why: &str| Err(format!("{why}: {line}"));
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').ok_or(format!("no help: {line}"))?;
                if !is_name(name) || help.is_empty() || !helped.insert(name.to_owned()) {
                    return wrong("HELP twice, or of no name");
                }
                current = name.into();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').ok_or(format!("no type: {line}"))?;
                let known = ["counter", "gauge", "histogram"].contains(&kind);
                if name != current || !known {
                    return wrong("TYPE does not follow its HELP");
                }
                if document.kinds.insert(name.into(), kind.into()).is_some() {
                    return wrong("TYPE twice");
                }
            } else {
                let (series, value) = line.rsplit_once(' ').ok_or(format!("no value: {line}"))?;
                let value: f64 = value.parse().map_err(|_| format!("no number: {line}"))?;
                let name = series_name(series).ok_or(format!("bad labels: {line}"))?;
                let suffixes = match document.kinds.get(&current).map(String::as_str) {
                    Some("histogram") => &["_bucket", "_sum", "_count"][..],
                    Some(_) => &[""][..],
                    None => return wrong("a sample without TYPE"),
                };
                if !suffixes.iter().any(|it| format!("{current}{it}") == name) {
                    return wrong("a sample of another family");
                }
                let (series, daemon) = split(series).ok_or(format!("no daemon: {line}"))?;
                if document.daemon.is_empty() {
                    document.daemon = daemon;
                } else if document.daemon != daemon {
                    return wrong("another daemon");
                }
                if document.samples.insert(series, value).is_some() {
                    return wrong("a sample twice");
                }
            }
        }
        document.check()?;
        Ok(document)
    }

    /// Counters end in `_total` and are not negative; buckets add up.
    fn check(&self) -> Result<(), String> {
        for (name, kind) in &self.kinds {
            if (kind == "counter") != name.ends_with("_total") {
                return Err(format!("{name} is a {kind}"));
            }
            if !self.samples.keys().any(|it| it.starts_with(name.as_str())) {
                return Err(format!("{name} has no sample"));
            }
            if kind != "histogram" {
                continue;
            }
            let mut buckets = Vec::new();
            for (series, value) in &self.samples {
                let bound = series.strip_prefix(&format!("{name}_bucket{{le=\""));
                if let Some(bound) = bound.and_then(|it| it.strip_suffix("\"}")) {
                    let bound =
                        if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
                    buckets.push((bound, *value));
                }
            }
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            let grows = buckets.windows(2).all(|it| it[0].0 < it[1].0 && it[0].1 <= it[1].1);
            let last = buckets.last().filter(|it| it.0.is_infinite()).map(|it| it.1);
            if !grows
                || last.is_none()
                || last != self.samples.get(&format!("{name}_count")).copied()
            {
                return Err(format!("the buckets of {name} do not add up: {buckets:?}"));
            }
            if !self.samples.contains_key(&format!("{name}_sum")) {
                return Err(format!("{name} has no sum"));
            }
        }
        let negative = self.samples.iter().find(|it| !(it.1.is_finite() && *it.1 >= 0.0));
        negative.map_or(Ok(()), |it| Err(format!("{it:?}")))
    }

    #[track_caller]
    pub fn get(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.samples))
    }

    /// How many series begin like this.
    pub fn count(&self, beginning: &str) -> usize {
        self.samples.keys().filter(|it| it.starts_with(beginning)).count()
    }

    /// Every name that a query can ask for.
    pub fn names(&self) -> BTreeSet<String> {
        self.samples.keys().map(|it| it.split('{').next().unwrap().to_owned()).collect()
    }
}

fn is_name(text: &str) -> bool {
    let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.starts_with("leasehold_") && text.chars().all(rest)
}

/// The name of a series whose labels are well formed.
fn series_name(series: &str) -> Option<String> {
    let Some((name, labels)) = series.split_once('{') else {
        return is_name(series).then(|| series.to_owned());
    };
    let mut rest = labels.strip_suffix('}')?;
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"")?;
        if label.is_empty() || !label.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            return None;
        }
        let mut escaped = false;
        let end = after.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        })?;
        rest = &after[end.0 + 1..];
        if let Some(next) = rest.strip_prefix(',') {
            rest = next;
        } else if !rest.is_empty() {
            return None;
        }
    }
    is_name(name).then(|| name.to_owned())
}
