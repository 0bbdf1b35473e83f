//! Tests of what a command sees, receives and leaves.

use std::thread;
use std::time::Duration;

use turnwise_sandbox::{Command, End, Files, Limits, Sandbox, SandboxError, Stage};

use crate::escapes::{limits, sandbox};

fn text(files: &[(&str, &str)]) -> Files {
    files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
}

fn shell(sandbox: &Sandbox, line: &str, files: &Files) -> (End, String, Files) {
    let outcome = sandbox.run(&Command::shell(line), files, &limits()).unwrap();
    (outcome.end, String::from_utf8_lossy(&outcome.output).into_owned(), outcome.files)
}

#[test]
fn files_go_in_and_come_back() {
    let Some((sandbox, _)) = sandbox() else { return };
    let files = text(&[("a.txt", "one"), ("deep/er/b.txt", "two"), ("gone", "")]);
    let line = "cat a.txt deep/er/b.txt; pwd; echo three > deep/c; rm gone; echo more >> a.txt; exit 3";
    let (end, output, after) = shell(&sandbox, line, &files);
    assert_eq!((end, output.as_str()), (End::Exited(3), "onetwo/work\n"));
    assert_eq!(after, text(&[("a.txt", "onemore\n"), ("deep/c", "three\n"), ("deep/er/b.txt", "two")]));
    let (_, output, _) = shell(&sandbox, "ls -a /work /tmp; env | sort | head -3; id -u", &Files::new());
    assert!(
        output.contains("HOME=/work") && output.ends_with("1000\n"),
        "nothing is left of the last one: {output}"
    );
    assert!(!output.contains("a.txt"));
}

#[test]
fn memory_of_the_program_is_not_the_commands() {
    let Some((sandbox, python)) = sandbox() else { return };
    // New processes start as copies of this one, which exceeds the sandbox's limit.
    let own = vec![1_u8; 256 << 20];
    let limits = Limits { memory: 128 << 20, ..limits() };
    let run = |code: &str| {
        let command = Command::new(&python.program).arg("-I").arg("-c").arg(code);
        sandbox.run(&command, &Files::new(), &limits).unwrap().end
    };
    for _ in 0..3 {
        assert_eq!(run("import time; time.sleep(0.2)"), End::Exited(0));
    }
    // The command's own memory counts, also summed over processes.
    let children = "import os, time\nfor _ in range(3): os.fork()\nkept = b'x' * (40 << 20)\ntime.sleep(5)";
    assert_eq!(run(children), End::Memory);
    assert!(own.iter().all(|&byte| byte == 1));
}

#[test]
fn signals_and_unknown_programs_are_distinguished() {
    let Some((sandbox, _)) = sandbox() else { return };
    assert_eq!(shell(&sandbox, "kill -9 $$", &Files::new()).0, End::Signalled(9));
    let error = sandbox.run(&Command::new("/no/such/program"), &Files::new(), &limits()).unwrap_err();
    assert!(matches!(error, SandboxError::Kernel { stage: Stage::Command, .. }), "{error}");
    assert!(error.to_string().contains("start the command"), "{error}");
}

#[test]
fn wrong_paths_and_too_large_files_are_errors() {
    let Some((sandbox, _)) = sandbox() else { return };
    let long = "x/".repeat(40) + "x";
    for name in ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/.", "a/", "a\0b"] {
        let error = sandbox.run(&Command::shell(":"), &text(&[(name, "x")]), &limits()).unwrap_err();
        assert!(matches!(error, SandboxError::Path(_) | SandboxError::Nul(_)), "{name}: {error}");
    }
    let deep = sandbox.run(&Command::shell(":"), &text(&[(&long, "x")]), &limits()).unwrap();
    assert_eq!((deep.files.len(), deep.left_out), (0, 1), "too deep to come back");
    let large = Files::from([("large".to_owned(), vec![0; 9 << 20])]);
    let error = sandbox.run(&Command::shell(":"), &large, &limits()).unwrap_err();
    assert!(matches!(error, SandboxError::Kernel { stage: Stage::Files, .. }), "{error}");
    let error = sandbox.run(&Command::shell("a\0b"), &Files::new(), &limits()).unwrap_err();
    assert!(matches!(error, SandboxError::Nul(_)), "{error}");
}

#[test]
fn fifty_at_once_have_the_results_of_one_at_a_time() {
    let Some((sandbox, python)) = sandbox() else { return };
    let limits = Limits { wall: Duration::from_mins(1), ..limits() };
    // All use the same file names, and a limit ends one in five.
    let run = &|number: usize| {
        let code = format!(
            "import os, sys\nn = {number}\nopen('/tmp/same', 'w').write(str(n))\nopen('same', 'w').write(str(n * n))\n\
             if n % 5 == 0:\n    while True: os.write(1, b'x' * 4096)\n\
             print(sum(i * n for i in range(20000)), open('/tmp/same').read(), sorted(os.listdir('.')))\nsys.exit(n)"
        );
        let command = Command::new(&python.program).arg("-I").arg("-c").arg(code);
        sandbox.run(&command, &Files::new(), &limits).unwrap()
    };
    let together: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..50).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (number, outcome) in together.iter().enumerate() {
        let expected =
            if number % 5 == 0 { End::Output } else { End::Exited(i32::try_from(number).unwrap()) };
        assert_eq!(outcome.end, expected, "{number}");
        assert_eq!(outcome.files, text(&[("same", &(number * number).to_string())]));
        assert_eq!(*outcome, run(number), "{number}");
    }
}
