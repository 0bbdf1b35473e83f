//! Reads `functions.txt`: lines `name(parameter: type, optional?: type): What it does.`

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::bfcl::apis::Api;
use crate::python::values::{Dict, Value, dict};

const TEXT: &str = include_str!("functions.txt");

pub(in crate::bfcl) static NAMES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| TEXT.lines().filter_map(|line| Some(line.split_once('(')?.0)).collect());

pub(super) fn documents() -> HashMap<Api, Vec<(String, String)>> {
    let mut documents: HashMap<Api, Vec<(String, String)>> = HashMap::new();
    for (name, document) in TEXT.lines().filter_map(read) {
        let mut json = String::new();
        let api = Api::ALL.into_iter().find(|api| api.method(name).is_some());
        if let (Some(api), Ok(())) = (api, document.write_json(&mut json)) {
            documents.entry(api).or_default().push((name.to_owned(), json));
        }
    }
    documents
}

fn read(line: &'static str) -> Option<(&'static str, Value)> {
    let (head, does) = line.split_once("): ")?;
    let (name, parameters) = head.split_once('(')?;
    let (mut properties, mut required) = (Dict::new(), Vec::new());
    for parameter in parameters.split(", ").filter(|parameter| !parameter.is_empty()) {
        let (parameter, kind) = parameter.split_once(": ")?;
        let bare = parameter.trim_end_matches('?');
        properties.insert(bare, dict([("type", kind.into())]));
        if bare == parameter {
            required.push(Value::from(bare));
        }
    }
    let parameters =
        dict([("type", "dict".into()), ("properties", properties.into()), ("required", required.into())]);
    Some((name, dict([("name", name.into()), ("description", does.into()), ("parameters", parameters)])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_has_the_parameters_of_its_function() {
        let documents = documents();
        let count: usize = documents.values().map(Vec::len).sum();
        assert_eq!((count, documents.len()), (TEXT.lines().count(), 8), "a line is not a document of an API");
        for (api, (name, text)) in
            documents.iter().flat_map(|(api, all)| all.iter().map(move |one| (api, one)))
        {
            let document: Value = serde_json::from_str(text).unwrap();
            let about = document.as_dict().unwrap().get_str("parameters").unwrap().as_dict().unwrap();
            let names = about.get_str("properties").unwrap().as_dict().unwrap();
            let required = about.get_str("required").unwrap().as_list().unwrap();
            let found: Vec<(String, bool)> =
                names.keys().map(|name| (name.to_string(), required.contains(name))).collect();
            let method = api.method(name).unwrap();
            let expected = method.parameters.iter().map(|one| (one.name.to_owned(), one.default.is_none()));
            assert_eq!(found, expected.collect::<Vec<_>>(), "{name}");
        }
    }
}
