//! Directories and files. As with objects in Python, several directories may contain the same file
//! or directory.

use crate::python::values::{Dict, Raise, Value, dict};

/// Maximum number of entries that a walk visits; in a directory copied into itself, it would never
/// end.
const MOST_VISITED: usize = 50_000;
const DEEPEST: usize = 300;

#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    File(usize),
    Directory(usize),
}

#[derive(Clone, Debug)]
struct Directory {
    name: Value,
    parent: Option<usize>,
    contents: usize,
}

#[derive(Clone, Debug)]
struct File {
    name: Value,
    content: Value,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    directories: Vec<Directory>,
    files: Vec<File>,
    contents: Vec<Vec<(Value, Item)>>,
}

impl Tree {
    pub(super) fn new_directory(&mut self, name: Value, parent: Option<usize>) -> usize {
        self.contents.push(Vec::new());
        self.directories.push(Directory { name, parent, contents: self.contents.len() - 1 });
        self.directories.len() - 1
    }

    pub(super) fn name(&self, directory: usize) -> &Value {
        &self.directories[directory].name
    }

    pub(super) fn parent(&self, directory: usize) -> Option<usize> {
        self.directories[directory].parent
    }

    pub(super) fn entries(&self, directory: usize) -> &[(Value, Item)] {
        &self.contents[self.directories[directory].contents]
    }

    fn entries_mut(&mut self, directory: usize) -> &mut Vec<(Value, Item)> {
        &mut self.contents[self.directories[directory].contents]
    }

    pub(super) fn get(&self, directory: usize, name: &Value) -> Option<Item> {
        self.entries(directory).iter().find(|(known, _)| known == name).map(|(_, item)| *item)
    }

    pub(super) fn get_or_self(&self, directory: usize, name: &Value) -> Option<Item> {
        if name.as_str() == Some(".") { Some(Item::Directory(directory)) } else { self.get(directory, name) }
    }

    pub(super) fn content(&self, file: usize) -> &Value {
        &self.files[file].content
    }

    pub(super) fn write(&mut self, file: usize, content: Value) {
        self.files[file].content = content;
    }

    /// Adds a file without checking for an existing entry.
    pub(super) fn put_file(&mut self, directory: usize, name: Value, content: Value) {
        self.files.push(File { name: name.clone(), content });
        let file = Item::File(self.files.len() - 1);
        self.entries_mut(directory).push((name, file));
    }

    /// Adds a directory without checking for an existing entry.
    pub(super) fn put_directory(&mut self, parent: usize, name: Value, directory: usize) {
        self.entries_mut(parent).push((name, Item::Directory(directory)));
    }

    pub(super) fn add_file(&mut self, directory: usize, name: Value, content: Value) -> Result<(), Raise> {
        self.check_free("File", directory, &name)?;
        self.put_file(directory, name, content);
        Ok(())
    }

    pub(super) fn add_directory(&mut self, parent: usize, name: Value) -> Result<usize, Raise> {
        self.check_free("Directory", parent, &name)?;
        let directory = self.new_directory(name.clone(), Some(parent));
        self.put_directory(parent, name, directory);
        Ok(directory)
    }

    fn check_free(&self, kind: &str, directory: usize, name: &Value) -> Result<(), Raise> {
        if self.get(directory, name).is_none() {
            return Ok(());
        }
        let of = self.name(directory);
        Err(Raise::value_error(format!("{kind} '{name}' already exists in directory '{of}'.")))
    }

    pub(super) fn remove(&mut self, directory: usize, name: &Value) {
        self.entries_mut(directory).retain(|(known, _)| known != name);
    }

    pub(super) fn share_contents(&mut self, of: usize, with: usize) {
        self.directories[with].contents = self.directories[of].contents;
    }

    pub(super) fn copy_contents(&mut self, of: usize, to: usize) {
        let entries = self.entries(of).to_vec();
        self.contents.push(entries);
        self.directories[to].contents = self.contents.len() - 1;
    }

    /// Calls `visit` for each entry below a directory, parents before their children.
    pub(super) fn walk(
        &self,
        directory: usize,
        base: &str,
        visit: &mut dyn FnMut(&str, &Value, Item) -> Result<(), Raise>,
    ) -> Result<(), Raise> {
        let mut left = MOST_VISITED;
        self.walk_from(directory, base, visit, &mut left, 0)
    }

    fn walk_from(
        &self,
        directory: usize,
        base: &str,
        visit: &mut dyn FnMut(&str, &Value, Item) -> Result<(), Raise>,
        left: &mut usize,
        depth: usize,
    ) -> Result<(), Raise> {
        for (name, item) in self.entries(directory) {
            *left = left.checked_sub(1).filter(|_| depth < DEEPEST).ok_or_else(Raise::recursion)?;
            let path = format!("{base}/{name}");
            visit(&path, name, *item)?;
            if let Item::Directory(inner) = item {
                self.walk_from(*inner, &path, visit, left, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Returns a directory as a nested dictionary, or `None` if it contains itself.
    pub(super) fn value(&self, directory: usize) -> Option<Value> {
        let mut left = MOST_VISITED;
        self.value_from(directory, &mut left, 0)
    }

    fn value_from(&self, directory: usize, left: &mut usize, depth: usize) -> Option<Value> {
        let mut contents = Vec::new();
        for (name, item) in self.entries(directory) {
            *left = left.checked_sub(1).filter(|_| depth < DEEPEST)?;
            let value = match item {
                Item::Directory(inner) => self.value_from(*inner, left, depth + 1)?,
                Item::File(file) => {
                    let File { name, content } = &self.files[*file];
                    dict([("class", "File".into()), ("name", name.clone()), ("content", content.clone())])
                }
            };
            contents.push((name.clone(), value));
        }
        let contents = Dict::of_distinct(contents);
        let name = self.name(directory).clone();
        Some(dict([("class", "Directory".into()), ("name", name), ("contents", contents.into())]))
    }
}
