//! How does text become HTML? Markup is written in this source and nowhere else; everything else is escaped.
//!
//! Ids, addresses, errors and bodies come from strangers. [`Html::markup`] takes nothing that was made at run time, so
//! whatever was can only be put into a page by [`Html::text`], which escapes it.

use std::fmt::{Display, Write};

/// A piece of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Html(String);

impl Html {
    /// Markup, as the source has it.
    pub(crate) fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Text between tags, or a value between double quotes.
    pub(crate) fn text(&mut self, text: &dyn Display) -> &mut Self {
        // A `String` refuses nothing.
        let _ = write!(Escaping(&mut self.0), "{text}");
        self
    }

    /// A piece that was made before.
    pub(crate) fn add(&mut self, piece: &Self) -> &mut Self {
        self.0.push_str(&piece.0);
        self
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }

    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Escapes what means something in HTML, and shows what cannot be seen: a right-to-left override would let an id look like
/// another.
struct Escaping<'a>(&'a mut String);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '`' => self.0.push_str("&#96;"),
                '\\' => self.0.push(c),
                _ => self.0.extend(c.escape_debug()),
            }
        }
        Ok(())
    }
}

/// Puts literals as markup, and expressions in parentheses as text.
macro_rules! put {
    ($html:expr;) => { () };
    ($html:expr; $markup:literal $($rest:tt)*) => {{
        $html.markup($markup);
        $crate::web::html::put!($html; $($rest)*)
    }};
    ($html:expr; ($text:expr) $($rest:tt)*) => {{
        $html.text(&$text);
        $crate::web::html::put!($html; $($rest)*)
    }};
}
pub(crate) use put;

/// `path?name=value&…`, without the fields that are empty. Still to be put as text.
pub(crate) fn url(path: &str, fields: &[(&str, &str)]) -> String {
    let mut out = path.to_owned();
    let mut sign = '?';
    for (name, value) in fields.iter().filter(|it| !it.1.is_empty()) {
        out.push(sign);
        out.push_str(name);
        out.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    out.push(char::from(byte));
                }
                _ => {
                    let _ = write!(out, "%{byte:02X}");
                }
            }
        }
        sign = '&';
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_wrote_is_text_wherever_it_is_put() {
        let hostile = "</td><script>alert('1')</script>\" onload=`x`&lt;\u{202e}\u{0}\\é";
        let mut html = Html::default();
        put!(html; "<td title=\"" (hostile) "\">" (hostile) "</td>");
        let shown = "&lt;/td&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; \
                     onload=&#96;x&#96;&amp;lt;\\u{202e}\\0\\é";
        assert_eq!(html.as_str(), format!("<td title=\"{shown}\">{shown}</td>"));
    }

    #[test]
    fn an_address_of_a_page_carries_any_text() {
        let fields = [("id", "a b/?&=é\""), ("page", ""), ("q", "~x")];
        assert_eq!(url("/e", &fields), "/e?id=a%20b%2F%3F%26%3D%C3%A9%22&q=~x");
        assert_eq!(url("/e", &[("a", "")]), "/e");
    }
}
