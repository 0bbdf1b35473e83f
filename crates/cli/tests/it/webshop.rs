//! The shop from the command line, over the official files where `TURNWISE_DATA` names them.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail loudly")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("TURNWISE_DATA");
    if folder.is_none() {
        println!("skipped: TURNWISE_DATA not set");
    }
    folder.map(|folder| PathBuf::from(folder).join("webshop"))
}

fn turnwise(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = turnwise(args).output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn recorded_sessions_replay_from_the_command_line() {
    let Some(data) = data() else { return };
    let (file, data) = (data.join("sessions.jsonl.zst"), data.to_str().unwrap().to_owned());
    let replay = ["env", "replay", "webshop", file.to_str().unwrap(), "--data", &data];
    let unanswered = ["--unanswered", "this has no search bar"];
    let (code, said) = run(&[&replay[..], &unanswered].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("25 sessions, 274 steps, 0 differences (12 scores not compared"), "{said}");
    let (code, said) = run(&[&replay[..], &["--show", "1"]].concat());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("36 differences") && said.contains("and 35 more"), "{said}");
}

/// Plays with the expert's hints until the episode ends.
fn hinted(args: &[&str]) -> String {
    let mut child = turnwise(&[&["play", "webshop"], args].concat()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut text = String::new();
    input.write_all(b"hint\n").unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some((_, action)) = line.split_once("the expert would: ") {
            // After the last action nobody reads the next question any more.
            let _ = input.write_all(format!("{action}\nhint\n").as_bytes());
        }
        text.push_str(&line);
        text.push('\n');
    }
    assert!(child.wait().unwrap().success());
    text
}

#[test]
fn a_person_buys_by_taking_hints() {
    let text = hinted(&["--seed", "1"]);
    assert!(
        text.contains("WebShop [SEP] Instruction: [SEP] Find me ") && text.contains("  task_score "),
        "{text}"
    );
    let Some(data) = data() else { return };
    let text = hinted(&["--data", data.to_str().unwrap(), "--seed", "1"]);
    assert!(
        text.contains("WebShop [SEP] Instruction: [SEP] Find me ") && text.contains("  task_score "),
        "{text}"
    );
}

/// A shop being served; closed when dropped.
struct Served(Child, String);

impl Served {
    fn start() -> Self {
        let mut child = turnwise(&["play", "webshop", "--web", "127.0.0.1:0"]).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Self(child, address)
    }

    /// Sends a request and gives the whole answer.
    fn ask(&self, method: &str, path: &str, form: &str) -> String {
        self.ask_as(&self.1, method, path, form)
    }

    /// The same, with a host that the client takes the server for.
    fn ask_as(&self, host: &str, method: &str, path: &str, form: &str) -> String {
        let mut stream = TcpStream::connect(&self.1).unwrap();
        let length = form.len();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{form}")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A form that a page of this site made a browser send.
    fn post_from(&self, origin: &str) -> String {
        let mut stream = TcpStream::connect(&self.1).unwrap();
        let head = format!("POST /visit/1 HTTP/1.1\r\nHost: {}\r\nOrigin: {origin}\r\n", self.1);
        write!(stream, "{head}Content-Length: 12\r\n\r\nsearch=a+mug").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Document that the browser makes of a page; `None` after saying that there is no browser.
    fn browse(&self, path: &str) -> Option<String> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let there = |name: &&&str| {
            Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
        };
        let Some(browser) = names.iter().find(there) else {
            println!("skipped: none of {names:?} is installed");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let flags =
            ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=5000"];
        let output = Command::new(browser)
            .args(flags)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("http://{}{path}", self.1))
            .output()
            .unwrap();
        Some(String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_person_clicks_through_the_shop_in_a_browser() {
    let shop = Served::start();
    assert!(shop.ask("GET", "/", "").contains("303 See Other\r\nLocation: /visit/1\r\n"));
    let first = shop.ask("GET", "/visit/1", "");
    assert!(
        first.contains("<p>WebShop</p><p>Instruction: </p><p>Find me ")
            && first.contains("id=\"search_input\"")
    );
    let wanted = first.split("<p>Find me ").nth(1).unwrap().split("</p>").next().unwrap();
    let words = wanted.replace(|character: char| !character.is_ascii_alphanumeric(), "+");
    assert!(shop.ask("POST", "/visit/1", &format!("search={words}")).contains("Location: /visit/1\r\n"));
    let results = shop.ask("GET", "/visit/1", "");
    assert!(results.contains("<p>Page 1 (Total results: ") && results.contains("step 1 of 15"), "{results}");
    let product = results.split("class=\"link\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    shop.ask("POST", "/visit/1", &format!("action={}", product.replace('[', "%5B").replace(']', "%5D")));
    let item = shop.ask("GET", "/visit/1", "");
    assert!(
        item.contains("value=\"click[buy now]\">Buy Now</button>") && item.contains("Price: $"),
        "{item}"
    );
    if let Some(dom) = shop.browse("/visit/1") {
        assert!(dom.contains(">Buy Now</button>") && dom.contains("Price: $"), "{dom}");
    }
    shop.ask("POST", "/visit/1", "action=click%5Bnothing%5D");
    assert!(shop.ask("GET", "/visit/1", "").contains("`click[nothing]` does nothing here."));
    shop.ask("POST", "/visit/1", "action=click%5Bbuy+now%5D");
    let done = shop.ask("GET", "/visit/1", "");
    assert!(done.contains("Thank you for shopping with us!") && done.contains("Another goal"), "{done}");
    // The browser follows the redirect from the first page to a visit of its own.
    if let Some(dom) = shop.browse("/") {
        assert!(dom.contains("Find me ") && dom.contains("search_input"), "{dom}");
    }
    assert!(shop.ask("GET", "/visit/99", "").starts_with("HTTP/1.1 404 "));
    assert!(shop.ask("PUT", "/visit/1", "").starts_with("HTTP/1.1 405 "));
    assert!(shop.ask("POST", "/", "").starts_with("HTTP/1.1 405 "));
    assert!(shop.ask_as("example.org", "GET", "/visit/1", "").starts_with("HTTP/1.1 403 "));
}

#[test]
fn forms_of_other_sites_change_nothing() {
    let shop = Served::start();
    shop.ask("GET", "/", "");
    let before = shop.ask("GET", "/visit/1", "");
    for other in ["http://example.org", "null"] {
        assert!(shop.post_from(other).starts_with("HTTP/1.1 403 "), "{other}");
        assert_eq!(shop.ask("GET", "/visit/1", ""), before, "{other}");
    }
    assert!(shop.post_from(&format!("http://{}", shop.1)).starts_with("HTTP/1.1 303 "));
    assert_ne!(shop.ask("GET", "/visit/1", ""), before);
}

#[test]
fn what_the_shop_cannot_do_is_refused() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump.jsonl");
    for (args, expected) in [
        (vec!["play", "alfworld", "--web"], "only webshop has pages for a browser"),
        (vec!["play", "webshop", "--task", "nothing"], "no task has this in its id"),
        (vec!["env", "generate", "webshop", "--out", "x"], "to be written as files"),
        (
            vec!["env", "replay", "alfworld", file, "--data", "x", "--unanswered", "y"],
            "alfworld has no search",
        ),
        (
            vec!["env", "replay", "webshop", file, "--data", "x", "--dump", dump.to_str().unwrap()],
            "cannot be written",
        ),
    ] {
        let (code, said) = run(&args);
        assert!(code == Some(2) && said.contains(expected), "{args:?}: {said}");
    }
    // What was refused leaves nothing behind, in the folder that it named or in this one.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
