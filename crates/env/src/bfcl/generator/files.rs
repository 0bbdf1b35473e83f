//! Requests about files.

use super::request::{Draw, Request, Scene, TOPICS};
use crate::python::values::{Dict, Value, dict};

const ENDINGS: [&str; 5] = ["txt", "md", "csv", "log", "doc"];
const FOLDERS: [&str; 16] = [
    "archive", "backup", "drafts", "photos", "reports", "music", "notes", "plans", "old", "shared", "work",
    "home", "travel", "school", "taxes", "temp",
];

fn file(content: String) -> Value {
    dict([("type", "file".into()), ("content", content.into())])
}

pub(super) fn scene(draw: &mut Draw) -> Scene {
    let topics: [&str; 16] = draw.words(&TOPICS);
    let names: Vec<String> = topics.iter().map(|topic| format!("{topic}.{}", draw.word(&ENDINGS))).collect();
    let [folder, store, vault, drawer, new_folder] = draw.words(&FOLDERS);
    let content = |draw: &mut Draw| {
        let lines: Vec<String> = (0..draw.number(1, 3)).map(|_| draw.sentence()).collect();
        lines.join("\n")
    };
    let mut root = Dict::new();
    let contents: [String; 9] = std::array::from_fn(|_| content(draw));
    for (name, content) in names.iter().zip(&contents) {
        root.insert(name.as_str(), file(content.clone()));
    }
    let inside = &names[9];
    for (name, has_file) in [(folder, false), (store, false), (vault, false), (drawer, true)] {
        let mut inner = Dict::new();
        if has_file {
            inner.insert(inside.as_str(), file(content(draw)));
        }
        root.insert(name, dict([("type", "directory".into()), ("contents", inner.into())]));
    }
    let home = dict([("type", "directory".into()), ("contents", root.clone().into())]);
    let mut config = Dict::new();
    config.insert("root", dict([("home", home)]));
    let named = |place: usize| Value::from(names[place].as_str());
    let text = draw.sentence();
    let [new, copy, renamed] = [&names[10], &names[11], &names[12]];
    // One such request at most, because the current folder is not compared.
    let inside_a_folder = if draw.0.chance(0.5) {
        Request::new(format!("Go into the folder '{drawer}', delete the only file in it, and come back."))
            .call("cd", [("folder", drawer.into())])
            .lookup("ls", [])
            .call("rm", [("file_name", named(9))])
            .call("cd", [("folder", "..".into())])
    } else {
        Request::new(format!("Go into the folder '{store}', create '{}' there, and come back.", names[13]))
            .call("cd", [("folder", store.into())])
            .call("touch", [("file_name", named(13))])
            .call("cd", [("folder", "..".into())])
    };
    let requests = vec![
        Request::new(match draw.number(0, 2) {
            0 => format!("Create an empty file called '{new}'."),
            1 => format!("I need a new empty file, '{new}'."),
            _ => format!("Please make an empty file with the name '{new}'."),
        })
        .call("touch", [("file_name", named(10))])
        .vaguely("Please create an empty file for me.", format!("Call it '{new}'.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Make a folder named '{new_folder}'."),
            _ => format!("I want a new folder called '{new_folder}'."),
        })
        .call("mkdir", [("dir_name", new_folder.into())])
        .vaguely("Please make a new folder.", format!("Its name is '{new_folder}'.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Move '{}' into the folder '{folder}'.", names[0]),
            _ => format!("'{}' belongs into the folder '{folder}', please move it there.", names[0]),
        })
        .call("mv", [("source", named(0)), ("destination", folder.into())])
        .vaguely(format!("Move '{}' into another folder.", names[0]), format!("Into '{folder}'.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Copy '{}' to '{copy}'.", names[1]),
            _ => format!("I need a copy of '{}', named '{copy}'.", names[1]),
        })
        .call("cp", [("source", named(1)), ("destination", named(11))])
        .vaguely(format!("I need a copy of '{}'.", names[1]), format!("Name it '{copy}'.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Delete '{}'.", names[2]),
            _ => format!("I do not need '{}' any more, remove it.", names[2]),
        })
        .call("rm", [("file_name", named(2))])
        .vaguely("There is a file that I do not need any more, delete it.", format!("It is '{}'.", names[2])),
        Request::new(match draw.number(0, 1) {
            0 => format!("Write '{text}' into '{}'.", names[3]),
            _ => format!("The content of '{}' should be '{text}'.", names[3]),
        })
        .call("echo", [("content", text.as_str().into()), ("file_name", named(3))])
        .vaguely(format!("Replace the content of '{}'.", names[3]), format!("It should be '{text}'.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Rename '{}' to '{renamed}'.", names[4]),
            _ => format!("'{}' should be called '{renamed}' from now on.", names[4]),
        })
        .call("mv", [("source", named(4)), ("destination", named(12))])
        .vaguely(format!("Give '{}' another name.", names[4]), format!("The new name is '{renamed}'.")),
        {
            let (unit, mode) = [("lines", "l"), ("words", "w"), ("characters", "c")][draw.0.below(3)];
            Request::new(format!("How many {unit} does '{}' have?", names[5]))
                .call("wc", [("file_name", named(5)), ("mode", mode.into())])
        },
        {
            // A word that occurs, so the result is not empty.
            let word = contents[6].split(' ').nth(1).unwrap_or_default();
            Request::new(format!("Show the lines of '{}' that contain '{word}'.", names[6]))
                .call("grep", [("file_name", named(6)), ("pattern", word.into())])
        },
        Request::new(match draw.number(0, 1) {
            0 => format!("Show the lines of '{}' in alphabetical order.", names[7]),
            _ => format!("What does '{}' look like with its lines sorted?", names[7]),
        })
        .call("sort", [("file_name", named(7))]),
        inside_a_folder,
        Request::new(format!(
            "Move the file with '{}' in its name into the folder '{vault}'; look up what it is called.",
            topics[8]
        ))
        .lookup("ls", [])
        .call("mv", [("source", named(8)), ("destination", vault.into())]),
    ];
    Scene { config, requests }
}
