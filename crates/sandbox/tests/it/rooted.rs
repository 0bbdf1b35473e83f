//! Tests of image folders as roots.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use turnwise_sandbox::{Command, End, Files, Limits, Root, Sandbox, copy_folder};

use crate::escapes::{limits, sandbox};

/// Programs of this machine that the image gets.
const PROGRAMS: [&str; 9] = ["sh", "cat", "id", "ls", "mkdir", "head", "rm", "ln", "sleep"];

/// Copies programs and their libraries into a folder, readable by all users.
fn make_image(image: &Path) {
    let paths = PROGRAMS.iter().map(|program| {
        let places = ["/bin", "/usr/bin"].map(|folder| PathBuf::from(folder).join(program));
        places.into_iter().find(|path| path.exists()).unwrap()
    });
    for path in paths {
        let output = process::Command::new("ldd").arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let libraries = text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
        for file in libraries.chain([path.clone()]) {
            let target = image.join(file.strip_prefix("/").unwrap());
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            if !target.exists() {
                fs::copy(file.canonicalize().unwrap(), target).unwrap();
            }
        }
    }
}

fn root(folder: &Path, copy: &Path) -> Root {
    Root {
        folder: folder.to_owned(),
        hidden: vec![PathBuf::from("/secret")],
        writable: vec![(PathBuf::from("/home/repo"), copy.to_owned())],
        start: PathBuf::from("/home/repo"),
    }
}

#[test]
fn an_image_is_the_root_and_only_its_copy_changes() {
    if sandbox().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    make_image(&image);
    for (path, text) in
        [("home/repo/a/f", "one\n"), ("secret/s", "no"), ("etc/passwd", "root:x:0:0::/:/bin/sh\n")]
    {
        let path = image.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    std::os::unix::fs::symlink("a/f", image.join("home/repo/link")).unwrap();
    let copy = folder.path().join("copy");
    copy_folder(&image.join("home/repo"), &copy).unwrap();
    let sandbox = Sandbox::in_root(&root(&image, &copy)).unwrap();
    let shell = |line: &str, limits: &Limits| {
        let outcome = sandbox.run(&Command::shell(line), &Files::new(), limits).unwrap();
        (outcome.end, String::from_utf8_lossy(&outcome.output).into_owned())
    };
    let line = "id -u; cat link; echo two > a/f; mkdir b; echo x > b/new; cat /etc/passwd";
    assert_eq!(shell(line, &limits()), (End::Exited(0), "0\none\nroot:x:0:0::/:/bin/sh\n".to_owned()));
    // Changes stay for the next command, and the image is as it was.
    assert_eq!(shell("cat a/f b/new", &limits()), (End::Exited(0), "two\nx\n".to_owned()));
    assert_eq!(fs::read_to_string(image.join("home/repo/a/f")).unwrap(), "one\n");
    assert!(!image.join("home/repo/b").exists());
    // Neither the rest of the image nor the host can be changed or seen.
    for line in [
        "echo x > /etc/passwd",
        "echo x > /usr/new",
        "rm /bin/cat",
        "cat /secret/s",
        "ls /proc/1",
        &format!("ls {}", folder.path().display()),
        "ln /etc/passwd hard",
        "echo x > /home/other",
        "mkdir /new",
        "echo x > /dev/full",
    ] {
        let (end, output) = shell(line, &limits());
        assert!(matches!(end, End::Exited(code) if code != 0), "{line}: {end:?} {output}");
    }
    // What is written to the copy is limited, in one file and in many.
    let small = Limits { disk: 1 << 20, ..limits() };
    let many = "i=0; while [ $i -lt 40 ]; do head -c 100000 /dev/zero > z$i; i=$((i + 1)); done; sleep 20";
    assert_eq!(shell(many, &small).0, End::Disk);
    assert!(!shell("rm -f z*; head -c 3000000 /dev/zero > z; ls", &small).1.contains("\nz3"));
    let (end, _) = shell("rm -f z*; echo fine", &small);
    assert_eq!(end, End::Exited(0));
}

#[test]
fn images_without_a_shell_and_missing_folders_are_errors() {
    if sandbox().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, copy) = (folder.path().join("image"), folder.path().join("copy"));
    fs::create_dir_all(image.join("home/repo")).unwrap();
    copy_folder(&image.join("home/repo"), &copy).unwrap();
    let error = Sandbox::in_root(&root(&image, &copy)).unwrap_err().to_string();
    assert!(error.contains("start the command"), "{error}");
    let none = folder.path().join("none");
    for error in [
        Sandbox::in_root(&root(&none, &copy)).map(drop).unwrap_err(),
        Sandbox::in_root(&root(&image, &none)).map(drop).unwrap_err(),
        copy_folder(&none, &copy).unwrap_err(),
    ] {
        assert!(error.to_string().contains("none"), "{error}");
    }
}
