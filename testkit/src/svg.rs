//! What every picture here begins with: readable on light and dark pages, and by those who cannot see it.

use std::fmt::Write;

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.ground { fill: #ffffff; } .axis { stroke: #1f2328; fill: none; } .title { font-size: 14px; \
font-weight: 600; }
.marker { stroke: #1f2328; stroke-dasharray: 3 3; } .faint { fill: #59636e; }
.count { fill: #111111; text-anchor: middle; } .hatch { stroke: #d1242f; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .ground { fill: #0d1117; } .axis, .marker { stroke: #e6edf3; }
.faint { fill: #9198a1; } .count { fill: #111111; } .hatch { stroke: #ff7b72; } }";

/// A picture that is still empty.
pub struct Page<'a> {
    pub width: f64,
    pub height: f64,
    /// Where the title begins.
    pub left: f64,
    pub title: &'a str,
    /// What one sees, for those who cannot.
    pub description: &'a str,
    /// Patterns that are used in it, a line each.
    pub defs: &'a str,
}

impl Page<'_> {
    /// Everything before what is drawn. The caller writes `</svg>`.
    pub fn open(&self, out: &mut String) -> std::fmt::Result {
        let Self { width, height, left, defs, .. } = self;
        let (title, description) = (escaped(self.title), escaped(self.description));
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title description">
<title id="title">{title}</title>
<desc id="description">{description}</desc>
<style>
{STYLE}
</style>
{defs}<rect class="ground" width="{width}" height="{height}"/>
<text class="title" x="{left}" y="26">{title}</text>"#
        )
    }
}

pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
