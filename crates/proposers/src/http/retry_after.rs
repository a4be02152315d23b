//! How long a server asks to wait, in the forms servers use. What is not here: whether the wait is taken (`exchange`).

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// The wait from `retry-after-ms` or `retry-after` (seconds, also with a fraction, or an HTTP date). `header` looks a
/// header up.
pub(crate) fn read<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<Duration> {
    let millis = header("retry-after-ms").and_then(|text| seconds(text, 1000.0));
    millis.or_else(|| {
        header("retry-after").and_then(|text| seconds(text, 1.0).or_else(|| until(text, OffsetDateTime::now_utc())))
    })
}

fn seconds(text: &str, per_second: f64) -> Option<Duration> {
    let amount: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(amount / per_second).ok()
}

fn until(text: &str, now: OffsetDateTime) -> Option<Duration> {
    // An HTTP date is the RFC 2822 form with the zone written as GMT.
    let date = OffsetDateTime::parse(text.trim(), &Rfc2822).ok()?;
    Some(Duration::try_from(date - now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let of = |name: &'static str, value: &'static str| read(move |asked| (asked == name).then_some(value));
        assert_eq!(of("retry-after", "3"), Some(Duration::from_secs(3)));
        assert_eq!(of("retry-after", " 1.5 "), Some(Duration::from_millis(1500)));
        assert_eq!(of("retry-after-ms", "250"), Some(Duration::from_millis(250)));
        assert_eq!(of("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        for nonsense in ["-1", "soon", "NaN", "1e999", ""] {
            assert_eq!(read(|_| Some(nonsense)), None, "{nonsense}");
        }
        let now = OffsetDateTime::UNIX_EPOCH;
        assert_eq!(until("Thu, 01 Jan 1970 00:01:30 GMT", now), Some(Duration::from_secs(90)));
    }
}
