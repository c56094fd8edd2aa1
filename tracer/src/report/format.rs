//! Numbers as people read them.

/// `1234567` as `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 write`, `2,000 writes`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(count))
}

/// Nanoseconds as microseconds, without the unit: two decimals below ten, else one.
pub(crate) fn us(ns: f64) -> String {
    let us = ns / 1000.0;
    decimals(us, if us.abs() < 9.995 { 2 } else { 1 })
}

/// A number with a fixed count of decimals and separated thousands.
pub(crate) fn decimals(number: f64, decimals: usize) -> String {
    let fixed = format!("{:.decimals$}", number.abs());
    let (whole, fraction) = fixed.split_once('.').unwrap_or((&fixed, ""));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), thousands);
    let sign = if number < 0.0 && fixed.contains(|c: char| ('1'..='9').contains(&c)) {
        "-"
    } else {
        ""
    };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

/// A share as per cent. Never rounds something to nothing, nor almost everything to all.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        p if p > 0.0 && p < 0.01 => "<0.01 %".to_owned(),
        p if p < 1.0 => format!("{p:.2} %"),
        p if (99.95..100.0).contains(&p) => ">99.9 %".to_owned(),
        p => format!("{p:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(
            [0, 999, 1000, 23_410, 1_000_000].map(thousands).join(" "),
            "0 999 1,000 23,410 1,000,000"
        );
    }

    #[test]
    fn microseconds_have_two_decimals_below_ten() {
        let shown = [
            0.0,
            4.0,
            9_994.0,
            9_996.0,
            16_149.0,
            1_234_567.0,
            -1500.0,
            -1.0,
        ]
        .map(us);
        assert_eq!(
            shown.join(" "),
            "0.00 0.00 9.99 10.0 16.1 1,234.6 -1.50 0.00"
        );
    }

    #[test]
    fn a_share_is_never_rounded_to_none_or_all() {
        let shown = [0.0, 0.00001, 0.005, 0.01, 0.61, 0.99999, 1.0].map(percent);
        assert_eq!(
            shown.join(" "),
            "0.00 % <0.01 % 0.50 % 1.0 % 61.0 % >99.9 % 100.0 %"
        );
    }
}
