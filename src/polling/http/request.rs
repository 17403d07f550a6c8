//! What does a poll send? One request, with the headers of its check.

use crate::lease::permit::PollPermit;
use crate::model::{Check, Header, HeaderValue};
use crate::polling::http::secrets::{NoSecret, Secrets};
use crate::polling::http::url::Url;

const USER_AGENT: &str = concat!("leasehold/", env!("CARGO_PKG_VERSION"));

/// The bytes of the request. A header of the check takes the place of ours of that name. An error names the header and its
/// file.
pub(super) fn request<'a>(
    url: &Url<'_>,
    check: &'a Check,
    permit: &PollPermit,
    secrets: &Secrets,
) -> Result<Vec<u8>, (&'a Header, &'a str, NoSecret)> {
    let mut text = format!("{} {} HTTP/1.1\r\n", check.method.as_str(), url.target);
    let mut put = |name: &str, value: &str| text.extend([name, ": ", value, "\r\n"]);
    let ours = [("Host", url.authority), ("User-Agent", USER_AGENT), ("Accept", "*/*")];
    for (name, value) in ours.into_iter().filter(|it| !check.headers.iter().any(|h| h.is(it.0))) {
        put(name, value);
    }
    put("Connection", "close");
    put("X-Leasehold-Instance", permit.instance().as_str());
    put("X-Leasehold-Fence", &permit.tenure().fence.0.to_string());
    for header in &check.headers {
        match &header.value {
            HeaderValue::Text(value) => put(&header.name, value),
            HeaderValue::File(file) => {
                let value = secrets.value(file).map_err(|why| (header, &**file, why))?;
                put(&header.name, &value);
            }
        }
    }
    text.push_str("\r\n");
    Ok(text.into_bytes())
}
