//! A server goes on when its log cannot be written: the log's disk is full, or whoever read it is gone.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::program::{TOOLGATE, run};

fn serves_with_its_log_in(log: Stdio) {
    let dir = TempDir::new().unwrap();
    let mut server = Command::new(TOOLGATE)
        .args(["serve", "--bind", "127.0.0.1:0", "--data-dir", &dir.path().display().to_string()])
        // Every request writes lines.
        .env("RUST_LOG", "trace")
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let listening = lines.next().and_then(Result::ok).unwrap_or_default();
    let ready = listening
        .strip_prefix("listening on http://")
        .map(|address| (0..3).all(|_| run(&["health", "--address", address]).status.success()));
    let running = server.try_wait().unwrap().is_none();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!((ready, running), (Some(true), true), "{listening}");
}

#[test]
fn a_full_disk_under_the_log_stops_nothing() {
    serves_with_its_log_in(File::options().write(true).open("/dev/full").unwrap().into());
}

#[test]
fn a_log_whose_reader_is_gone_stops_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    serves_with_its_log_in(writer.into());
}

#[test]
fn a_log_that_no_person_reads_has_no_colour_codes() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("log");
    serves_with_its_log_in(File::create(&path).unwrap().into());
    let log = std::fs::read_to_string(path).unwrap();
    assert!(!log.is_empty() && !log.contains('\u{1b}'), "{log}");
}
