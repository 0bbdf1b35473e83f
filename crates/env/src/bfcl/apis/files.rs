//! `GorillaFileSystem`: a file system.

use super::tree::{Item, Tree};
use super::{Fields, LongContext, error};
use crate::python::method::{Arguments, Default, Method, method, optional, required};
use crate::python::values::{
    Dict, Order, Raise, Value, compare, contains, dict, hashable, length, negate, split_lines, str_method,
    two_decimals, words,
};

pub(super) const METHODS: &[Method] = &[
    method("pwd", &[]),
    method("ls", &[optional("a", Default::False)]),
    method("cd", &[required("folder")]),
    method("mkdir", &[required("dir_name")]),
    method("touch", &[required("file_name")]),
    method("echo", &[required("content"), optional("file_name", Default::None)]),
    method("cat", &[required("file_name")]),
    method("find", &[optional("path", Default::Str(".")), optional("name", Default::None)]),
    method("wc", &[required("file_name"), optional("mode", Default::Str("l"))]),
    method("sort", &[required("file_name")]),
    method("grep", &[required("file_name"), required("pattern")]),
    method("du", &[optional("human_readable", Default::False)]),
    method("tail", &[required("file_name"), optional("lines", Default::Int(10))]),
    method("diff", &[required("file_name1"), required("file_name2")]),
    method("mv", &[required("source"), required("destination")]),
    method("rm", &[required("file_name")]),
    method("rmdir", &[required("dir_name")]),
    method("cp", &[required("source"), required("destination")]),
];

#[derive(Clone, Debug)]
pub(super) struct Files {
    tree: Tree,
    root: usize,
    current: usize,
    is_long: bool,
}

fn missing(command: &str, name: &Value) -> Value {
    error(format!("{command}: {name}: No such file or directory"))
}

fn is_name(name: &Value) -> Result<bool, Raise> {
    for forbidden in ["|", "/", "\\", "?", "%", "*", ":", "\"", ">", "<"] {
        if contains(name, &forbidden.into())? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Files {
    pub(super) fn new(scenario: &Dict, long: Option<&LongContext>) -> Self {
        let mut tree = Tree::default();
        let root = scenario.get_str("root").and_then(Value::as_dict).and_then(|root| root.iter().next());
        let start = match root {
            Some((name, directory)) => {
                let start = tree.new_directory(name.clone(), None);
                load(&mut tree, start, directory, long);
                start
            }
            None => tree.new_directory("/".into(), None),
        };
        Self { tree, root: start, current: start, is_long: long.is_some() }
    }

    pub(super) fn state(&self) -> Vec<(&'static str, Value)> {
        // NaN: a tree that contains itself equals nothing.
        let root = self.tree.value(self.root).unwrap_or(Value::Float(f64::NAN));
        vec![("long_context", self.is_long.into()), ("root", root)]
    }

    pub(super) fn call(&mut self, method: &str, arguments: Arguments) -> Result<Value, Raise> {
        match method {
            "pwd" => Ok(self.path()),
            "ls" => self.list(arguments.take()),
            "cd" => self.change(arguments.take()),
            "mkdir" => {
                let [name] = arguments.take();
                self.create("mkdir: cannot create directory", name, true)
            }
            "touch" => {
                let [name] = arguments.take();
                self.create("touch: cannot touch", name, false)
            }
            "echo" => self.echo(arguments.take()),
            "cat" => self.cat(arguments.take()),
            "find" => self.find(arguments.take()),
            "wc" => self.count(arguments.take()),
            "sort" => self.sort(arguments.take()),
            "grep" => self.grep(arguments.take()),
            "du" => self.usage(arguments.take()),
            "tail" => self.tail(arguments.take()),
            "diff" => self.diff(arguments.take()),
            "mv" => self.transfer(arguments.take(), true),
            "cp" => self.transfer(arguments.take(), false),
            "rm" => self.remove(arguments.take()),
            _ => self.remove_directory(arguments.take()),
        }
    }

    fn here(&self, name: &Value) -> Result<Option<Item>, Raise> {
        hashable(name)?;
        Ok(self.tree.get(self.current, name))
    }

    fn file(&self, name: &Value) -> Result<Option<&Value>, Raise> {
        Ok(match self.here(name)? {
            // `.` is the directory even if a file has that name.
            Some(Item::File(file)) if name.as_str() != Some(".") => Some(self.tree.content(file)),
            _ => None,
        })
    }

    fn path(&self) -> Value {
        let mut names = Vec::new();
        let mut directory = Some(self.current);
        while let Some(place) = directory {
            names.push(self.tree.name(place).to_string());
            directory = self.tree.parent(place);
        }
        names.reverse();
        dict([("current_working_directory", format!("/{}", names.join("/")).into())])
    }

    fn list(&self, [all]: [Value; 1]) -> Result<Value, Raise> {
        let mut names = Vec::new();
        for (name, _) in self.tree.entries(self.current) {
            if all.is_true() || !str_method(name, "startswith")?.starts_with('.') {
                names.push(name.clone());
            }
        }
        Ok(dict([("current_directory_content", names.into())]))
    }

    fn change(&mut self, [folder]: [Value; 1]) -> Result<Value, Raise> {
        let folder = str_method(&folder, "rstrip")?.trim_end_matches('/');
        let folder = if folder.is_empty() { "/" } else { folder };
        if folder != "/" && folder.contains('/') {
            return Ok(error(format!(
                "cd: {folder}: Unsupported path. Only one folder level at a time is supported."
            )));
        }
        if folder == ".." {
            return Ok(match self.tree.parent(self.current) {
                Some(parent) => {
                    self.current = parent;
                    Value::Dict(Dict::default())
                }
                None => error("Current directory is already the root. Cannot go back."),
            });
        }
        match self.navigate(&folder.into())? {
            Some(directory) => {
                self.current = directory;
                Ok(dict([("current_working_directory", self.tree.name(directory).clone())]))
            }
            None => Ok(error(format!("cd: '{folder}': No such file or directory"))),
        }
    }

    fn navigate(&self, path: &Value) -> Result<Option<usize>, Raise> {
        match path {
            Value::None => return Ok(Some(self.current)),
            Value::Str(path) if path == "." => return Ok(Some(self.current)),
            Value::Str(path) if path == "/" => return Ok(Some(self.root)),
            _ => {}
        }
        let path = str_method(path, "strip")?;
        let mut directory = if path.starts_with('/') { self.root } else { self.current };
        for name in path.trim_matches('/').split('/') {
            match self.tree.get_or_self(directory, &name.into()) {
                Some(Item::Directory(next)) => directory = next,
                _ => return Ok(None),
            }
        }
        Ok(Some(directory))
    }

    fn create(&mut self, prefix: &str, name: Value, is_directory: bool) -> Result<Value, Raise> {
        if !is_name(&name)? {
            return Ok(error(format!("{prefix} '{name}': Invalid character")));
        }
        if self.here(&name)?.is_some() {
            return Ok(error(format!("{prefix} '{name}': File exists")));
        }
        if is_directory {
            self.tree.add_directory(self.current, name)?;
        } else {
            self.tree.add_file(self.current, name, "".into())?;
        }
        Ok(Value::None)
    }

    fn echo(&mut self, [content, name]: [Value; 2]) -> Result<Value, Raise> {
        if matches!(name, Value::None) {
            return Ok(dict([("terminal_output", content)]));
        }
        if !is_name(&name)? {
            return Ok(error(format!("echo: cannot write to '{name}': Invalid character")));
        }
        if !name.is_true() {
            return Ok(dict([("terminal_output", content)]));
        }
        match self.here(&name)? {
            None => Ok(error(format!("echo: cannot write to '{name}': No such file"))),
            Some(Item::File(file)) if name.as_str() != Some(".") => {
                self.tree.write(file, content);
                Ok(Value::None)
            }
            Some(_) => {
                let text = "'Directory' object has no attribute '_write'";
                Err(Raise::new(super::Class::Attribute, text))
            }
        }
    }

    fn cat(&self, [name]: [Value; 1]) -> Result<Value, Raise> {
        if !is_name(&name)? {
            return Ok(error(format!("cat: '{name}': Invalid character")));
        }
        Ok(match (self.here(&name)?, self.file(&name)?) {
            (_, Some(content)) => dict([("file_content", content.clone())]),
            (Some(_), None) => error(format!("cat: '{name}': Is a directory")),
            (None, None) => error(format!("cat: '{name}': No such file or directory")),
        })
    }

    fn find(&self, [path, name]: [Value; 2]) -> Result<Value, Raise> {
        let Some(directory) = self.navigate(&path)? else {
            return Ok(error(format!("find: '{path}': No such file or directory")));
        };
        let base = str_method(&path, "rstrip")?.trim_end_matches('/');
        let mut matches: Vec<Value> = Vec::new();
        self.tree.walk(directory, base, &mut |path, entry, _| {
            if matches!(name, Value::None) || contains(entry, &name)? {
                matches.push(path.into());
            }
            Ok(())
        })?;
        Ok(dict([("matches", matches.into())]))
    }

    fn count(&self, [name, mode]: [Value; 2]) -> Result<Value, Raise> {
        if !matches!(mode.as_str(), Some("l" | "w" | "c")) {
            return Ok(error(format!("wc: invalid mode '{mode}'")));
        }
        let Some(content) = self.file(&name)? else { return Ok(missing("wc", &name)) };
        let (count, unit) = match mode.as_str() {
            Some("l") => (split_lines(str_method(content, "splitlines")?).len(), "lines"),
            Some("w") => (words(str_method(content, "split")?).count(), "words"),
            _ => (length(content)?, "characters"),
        };
        Ok(dict([("count", count.into()), ("type", unit.into())]))
    }

    fn sort(&self, [name]: [Value; 1]) -> Result<Value, Raise> {
        let Some(content) = self.file(&name)? else { return Ok(missing("sort", &name)) };
        let mut lines = split_lines(str_method(content, "splitlines")?);
        lines.sort_unstable();
        Ok(dict([("sorted_content", lines.join("\n").into())]))
    }

    fn grep(&self, [name, pattern]: [Value; 2]) -> Result<Value, Raise> {
        let Some(content) = self.file(&name)? else { return Ok(missing("grep", &name)) };
        let mut found: Vec<Value> = Vec::new();
        for line in split_lines(str_method(content, "splitlines")?) {
            let line = Value::from(line);
            if contains(&line, &pattern)? {
                found.push(line);
            }
        }
        Ok(dict([("matching_lines", found.into())]))
    }

    fn usage(&self, [human]: [Value; 1]) -> Result<Value, Raise> {
        let mut size = 0;
        self.tree.walk(self.current, "", &mut |_, _, item| {
            if let Item::File(file) = item {
                size += str_method(self.tree.content(file), "encode")?.len();
            }
            Ok(())
        })?;
        if !human.is_true() {
            return Ok(dict([("disk_usage", format!("{size} bytes").into())]));
        }
        let mut size = size as f64;
        for unit in ["B", "KB", "MB", "GB", "TB"] {
            if size < 1024.0 {
                return Ok(dict([("disk_usage", format!("{} {unit}", two_decimals(size)).into())]));
            }
            size /= 1024.0;
        }
        Ok(dict([("disk_usage", format!("{} PB", two_decimals(size)).into())]))
    }

    fn tail(&self, [name, count]: [Value; 2]) -> Result<Value, Raise> {
        let Some(content) = self.file(&name)? else { return Ok(missing("tail", &name)) };
        let lines = split_lines(str_method(content, "splitlines")?);
        let all = Value::from(lines.len());
        let count = if compare(Order::Greater, &count, &all)? { all.clone() } else { count };
        // As in a Python slice, -0 means everything, and a negative count starts at the front.
        let start = match negate(&count)? {
            Value::Int(start) => start,
            Value::Big(_) => i64::MAX,
            _ => {
                let text = "slice indices must be integers or None or have an __index__ method";
                return Err(Raise::type_error(text));
            }
        };
        let start = if start < 0 {
            lines.len().saturating_sub(usize::try_from(start.unsigned_abs()).unwrap_or(usize::MAX))
        } else {
            usize::try_from(start).unwrap_or(usize::MAX).min(lines.len())
        };
        Ok(dict([("last_lines", lines[start..].join("\n").into())]))
    }

    fn diff(&self, [one, other]: [Value; 2]) -> Result<Value, Raise> {
        let missing = || Ok(error(format!("diff: {one} or {other}: No such file or directory")));
        if self.here(&one)?.is_none() {
            return missing();
        }
        let (Some(right), Some(left)) = (self.file(&other)?, self.file(&one)?) else { return missing() };
        let left = split_lines(str_method(left, "splitlines")?);
        let right = split_lines(str_method(right, "splitlines")?);
        let pairs = left.into_iter().zip(right).filter(|(left, right)| left != right);
        let lines: Vec<String> = pairs.map(|(left, right)| format!("- {left}\n+ {right}")).collect();
        Ok(dict([("diff_lines", lines.join("\n").into())]))
    }

    fn transfer(&mut self, [source, destination]: [Value; 2], moves: bool) -> Result<Value, Raise> {
        let (command, verb, done) = if moves { ("mv", "move", "moved") } else { ("cp", "copy", "copied") };
        let prefix = format!("{command}: cannot {verb} '{source}'");
        let Some(item) = self.here(&source)? else {
            return Ok(error(format!("{prefix}: No such file or directory")));
        };
        if contains(&destination, &"/".into())? {
            let text = "path not allowed in destination. Provide only a file or directory name.";
            return Ok(error(format!("{command}: {text}")));
        }
        let (directory, name, shown) = match self.here(&destination)? {
            Some(Item::Directory(directory)) => {
                // The original looks up the whole path, which never exists.
                let entry = if moves { source.to_string() } else { format!("{destination}/{source}") };
                if self.tree.get(directory, &entry.into()).is_some() {
                    return Ok(error(format!("{prefix} to '{destination}/{source}': File exists")));
                }
                (directory, source.clone(), format!("{destination}/{source}"))
            }
            Some(Item::File(_)) => {
                return Ok(error(format!("{prefix} to '{destination}': Not a directory")));
            }
            None => (self.current, destination.clone(), destination.to_string()),
        };
        if moves {
            self.tree.remove(self.current, &source);
        }
        match item {
            Item::File(file) => {
                let content = self.tree.content(file).clone();
                self.tree.add_file(directory, name, content)?;
            }
            Item::Directory(from) => {
                let to = self.tree.add_directory(directory, name)?;
                if moves {
                    self.tree.share_contents(from, to);
                } else {
                    self.tree.copy_contents(from, to);
                }
            }
        }
        Ok(dict([("result", format!("'{source}' {done} to '{shown}'").into())]))
    }

    fn remove(&mut self, [name]: [Value; 1]) -> Result<Value, Raise> {
        if self.here(&name)?.is_none() {
            return Ok(error(format!("rm: cannot remove '{name}': No such file or directory")));
        }
        self.tree.remove(self.current, &name);
        Ok(removed(&name))
    }

    fn remove_directory(&mut self, [name]: [Value; 1]) -> Result<Value, Raise> {
        let reason = match self.here(&name)? {
            None => "No such file or directory",
            Some(Item::File(_)) => "Not a directory",
            Some(Item::Directory(directory)) if !self.tree.entries(directory).is_empty() => {
                "Directory not empty"
            }
            Some(Item::Directory(_)) => {
                self.tree.remove(self.current, &name);
                return Ok(removed(&name));
            }
        };
        Ok(error(format!("rmdir: cannot remove '{name}': {reason}")))
    }
}

fn removed(name: &Value) -> Value {
    dict([("result", format!("'{name}' removed").into())])
}

fn load(tree: &mut Tree, directory: usize, scenario: &Value, long: Option<&LongContext>) {
    let contents = scenario.as_dict().and_then(|entry| entry.get_str("contents")).and_then(Value::as_dict);
    let mut is_innermost = true;
    for (name, entry) in contents.into_iter().flat_map(Dict::iter) {
        let fields = Fields(entry.as_dict().unwrap_or(Fields::EMPTY));
        match fields.0.get_str("type").and_then(Value::as_str) {
            Some("directory") => {
                is_innermost = false;
                let inner = tree.new_directory(name.clone(), Some(directory));
                load(tree, inner, entry, long);
                tree.put_directory(directory, name.clone(), inner);
            }
            Some("file") => {
                let mut content = fields.value("content", "");
                if let (Value::Str(text), Some(long)) = (&mut content, long)
                    && !long.kept_files.contains(name)
                {
                    text.push_str(&long.file_content);
                }
                tree.put_file(directory, name.clone(), content);
            }
            _ => {}
        }
    }
    if let (true, Some(long)) = (is_innermost, long) {
        for name in &long.more_files {
            tree.put_file(directory, name.clone(), "".into());
        }
    }
}
