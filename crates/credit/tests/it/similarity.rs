//! The similarity: Python's live and recorded results.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::process::{Command, Stdio};

use turnwise_core::{Purpose, Rng, Seed};
use turnwise_credit::similarity::{Similarity, ratio};

const PYTHON: &str = r"
import difflib, json, sys
for line in sys.stdin:
    a, b = json.loads(line)
    print(json.dumps([difflib.SequenceMatcher(None, a, b, autojunk=j).ratio() for j in (False, True)]))
";

fn text(rng: &mut Rng, alphabet: &[char], most: usize) -> String {
    (0..rng.below(most + 1)).map(|_| *rng.choose(alphabet).unwrap()).collect()
}

fn prose(rng: &mut Rng, words: usize) -> String {
    const WORDS: [&str; 24] = [
        "you",
        "are",
        "in",
        "the",
        "middle",
        "of",
        "a",
        "room",
        "cabinet 1",
        "drawer 2",
        "looking",
        "quickly",
        "around",
        "see",
        "closed",
        "open",
        "apple 3",
        "countertop 1",
        "on",
        "nothing",
        ".",
        "\n",
        "über",
        "日本",
    ];
    (0..words).map(|_| *rng.choose(&WORDS).unwrap()).collect::<Vec<_>>().join(" ")
}

fn edited(rng: &mut Rng, text: &str) -> String {
    let mut symbols: Vec<char> = text.chars().collect();
    for _ in 0..=rng.below(6) {
        let at = rng.below(symbols.len() + 1);
        match rng.below(4) {
            0 => symbols.insert(at, 'x'),
            1 if at < symbols.len() => drop(symbols.remove(at)),
            2 if at < symbols.len() => symbols[at] = 'é',
            _ => {
                let at = at.min(symbols.len());
                symbols.rotate_left(at);
            }
        }
    }
    symbols.into_iter().collect()
}

fn pairs(count: usize) -> Vec<(String, String)> {
    let mut rng = Seed::derive(5, Purpose::Credit, &[]).rng();
    let narrow: Vec<char> = "ab".chars().collect();
    let wide: Vec<char> = "abcdefgh ñ漢😀".chars().collect();
    let mut pairs = vec![(String::new(), String::new()), ("a".into(), String::new())];
    while pairs.len() < count {
        pairs.push(match pairs.len() % 6 {
            0 => (text(&mut rng, &narrow, 40), text(&mut rng, &narrow, 40)),
            1 => (text(&mut rng, &wide, 80), text(&mut rng, &wide, 300)),
            2 => {
                let base = prose(&mut rng, 80);
                (edited(&mut rng, &base), base)
            }
            3 => {
                let words = 20 + rng.below(60);
                (prose(&mut rng, words), prose(&mut rng, words))
            }
            4 => {
                let base = text(&mut rng, &wide, 260);
                (base.clone(), edited(&mut rng, &base))
            }
            _ => {
                let base = text(&mut rng, &narrow, 230);
                (edited(&mut rng, &base), base)
            }
        });
    }
    pairs
}

#[test]
fn equals_python_to_the_last_bit() {
    let count = 12_000;
    let child =
        Command::new("python3").args(["-c", PYTHON]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        println!("skipped: python3 not found; the stored answers are still checked");
        return;
    };
    let pairs = pairs(count);
    let mut stdin = child.stdin.take().unwrap();
    let lines: String = pairs.iter().map(|pair| serde_json::to_string(pair).unwrap() + "\n").collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let answers: Vec<[f64; 2]> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), count);
    for ((a, b), expected) in pairs.iter().zip(answers) {
        let got = [ratio(a, b, false), ratio(a, b, true)];
        assert_eq!(got.map(f64::to_bits), expected.map(f64::to_bits), "{a:?} {b:?}: {got:?} {expected:?}");
    }
}

#[test]
fn equals_the_stored_answers() {
    let golden: Vec<(String, String, f64, f64)> =
        serde_json::from_str(include_str!("../golden/similarity.json")).unwrap();
    assert!(golden.len() >= 100);
    let mut differ = 0;
    for (a, b, plain, junk) in golden {
        assert_eq!(ratio(&a, &b, false).to_bits(), plain.to_bits(), "{a:?} {b:?}");
        assert_eq!(ratio(&a, &b, true).to_bits(), junk.to_bits(), "{a:?} {b:?}");
        differ += usize::from(plain != junk);
        if plain > 0.0 {
            assert_ne!(ratio(&(a + "\u{1}"), &b, false).to_bits(), plain.to_bits());
        }
    }
    assert!(differ >= 10, "autojunk made a difference in {differ} cases only");
}

#[test]
fn a_bar_changes_nothing_but_the_time() {
    let mut similarity = Similarity::new(false);
    for (a, b) in pairs(3000) {
        let (a, b) = (similarity.intern(&a), similarity.intern(&b));
        let exact = similarity.ratio(a, b);
        for bar in [0.0, 0.3, exact, 0.9, 1.0] {
            assert_eq!(similarity.ratio_at_least(a, b, bar), (exact >= bar).then_some(exact));
            assert_eq!(similarity.ratio_above(a, b, bar), (exact > bar).then_some(exact));
        }
    }
}

#[test]
fn autojunk_can_call_near_identical_texts_different() {
    // 400 characters of two letters: both are popular, so no match can start inside.
    let base = "ab".repeat(200);
    let other = format!("x{base}");
    assert!(ratio(&base, &other, false) > 0.99);
    assert_eq!(ratio(&base, &other, true), 0.0);
}
