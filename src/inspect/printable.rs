//! How is text of a stranger shown without harm to a terminal?

/// What cannot be seen, or could do something to a terminal, as an escape.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' => out.push(c),
            _ => out.extend(c.escape_debug()),
        }
    }
    out
}
