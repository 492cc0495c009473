//! Tells the server when it was built, which `srvr` and `envi` show.

use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo::rustc-env=RINGKEEPER_BUILT_ON={}", utc(built_at_secs()));
}

/// Seconds since the Unix epoch; `SOURCE_DATE_EPOCH` stands for them in reproducible builds.
fn built_at_secs() -> u64 {
    let fixed = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|secs| secs.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    fixed.unwrap_or_else(now)
}

/// `2026-01-02 03:04 UTC`. Years are counted from March, so that the leap day is the last day of one.
fn utc(secs: u64) -> String {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    /// From 1 March 1600, which begins 400 years, to 1 January 1970.
    const DAYS_BEFORE: u64 = 135_080;
    let days = secs / 86_400 + DAYS_BEFORE;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / (DAYS_OF_400_YEARS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    let year = 1600 + 400 * era + year;
    let (hour, minute) = (secs / 3600 % 24, secs / 60 % 60);
    format!("{year:04}-{month:02}-{day_of_month:02} {hour:02}:{minute:02} UTC")
}
