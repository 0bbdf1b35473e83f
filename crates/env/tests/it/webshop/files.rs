//! Shops from files: the official ones, built ones, those of several processes.

use turnwise_core::{EnvError, Environment as _, Purpose, Seed};
use turnwise_env::webshop::generator::GeneratorConfig;
use turnwise_env::webshop::official::{self, Size};
use turnwise_env::webshop::{Product, WebshopOptions, WebshopSet};

use super::{option, play};

fn read(folder: &std::path::Path) -> Result<Vec<Product>, EnvError> {
    let mut products = Vec::new();
    official::read(folder, Size::Small, None, |product| {
        products.push(product);
        Ok(())
    })?;
    Ok(products)
}

#[test]
fn official_files_are_prepared_as_the_original_prepares_them() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let error = |expected: &str| {
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    error("there is no `items_shuffle_1000.json` and no `products_1000_documents.jsonl` (or `.zst` of it)");
    let product = |asin: &str, pricing: &str| {
        format!(
            r#"{{"asin": "{asin}", "name": "Mug", "full_description": "d", "small_description": "one", "pricing": "{pricing}",
            "customization_options": {{"Size": [{{"value": " 6/8 OZ "}}, {{"value": "L"}}], "none": null}}, "images": ["x"],
            "product_category": "A", "category": "c", "query": " Mugs ", "brand": null}}"#
        )
    };
    let all = format!(
        "[{}, {}, {}, {}]",
        product("A", "$1,009.50$12"),
        product("nan", ""),
        product("A", "$1"),
        product("B", "")
    );
    write("items_shuffle_1000.json", &all);
    error("there is no `items_ins_v2_1000.json`");
    write(
        "items_ins_v2_1000.json",
        r#"{"A": {"attributes": ["safe"], "instruction": "Find me", "instruction_attributes": ["safe"]}}"#,
    );
    let products = read(folder.path()).unwrap();
    let [a, b] = products.as_slice() else { panic!("{products:?}") };
    assert_eq!(
        (a.asin.as_str(), a.pricing.as_slice(), a.query.as_str()),
        ("A", [1009.5, 12.0].as_slice(), "mugs")
    );
    assert_eq!(a.options, [option("size", &["6 | 8 oz", "l"])]);
    assert_eq!(
        (a.bullet_points.as_slice(), a.instruction.as_deref()),
        (["one".to_owned()].as_slice(), Some("Find me"))
    );
    assert_eq!(
        (b.pricing.as_slice(), b.attributes.as_slice()),
        ([100.0].as_slice(), ["DUMMY_ATTR".to_owned()].as_slice())
    );

    write("items_shuffle_1000.json", &all[..all.len() - 200]);
    error("the file ends too early: fetch it again");
    write("items_shuffle_1000.json", &format!("[{}]", product("A", "free")));
    error("product number 1 (`A`): `pricing` is \"free\", without a dollar sign");
    // One odd product is left out and counted; the others are there.
    let odd = format!("[{}, {{\"asin\": \"B\"}}, {}]", product("A", "free"), product("C", "$5"));
    write("items_shuffle_1000.json", &odd);
    let mut asins = Vec::new();
    let report = official::read(folder.path(), Size::Small, None, |product| {
        asins.push(product.asin);
        Ok(())
    });
    let warning = report.unwrap().warning().unwrap();
    assert_eq!(asins, ["C"]);
    assert!(warning.starts_with("2 of 3 products are left out as unreadable: "), "{warning}");
    assert!(warning.contains("product number 1 (`A`): `pricing` is \"free\""), "{warning}");
    assert!(warning.contains("items_shuffle_1000.json, product number 2: missing field `name`"), "{warning}");
    write("items_shuffle_1000.json", "[]");
    error("there is no product in it");
    write("items_shuffle_1000.json", r#"[{"asin": "A"}]"#);
    error("missing field `name`");
}

#[test]
fn the_full_shop_is_built_once_and_read_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let product = |asin: &str, name: &str, pricing: &str| {
        format!(
            r#"{{"asin": "{asin}", "name": "{name}", "full_description": "d", "small_description": ["one"],
            "pricing": "{pricing}", "customization_options": "", "images": ["x"], "product_category": "A \u203a B",
            "category": "c", "query": "mugs"}}"#
        )
    };
    write(
        "items_shuffle.json",
        &format!("[{},{}]", product("B1", "red mug", "$9$12"), product("A1", "tea pot", "")),
    );
    write(
        "items_ins_v2.json",
        r#"{"B1": {"attributes": ["x"], "instruction": "Find me x", "instruction_attributes": ["x"]}}"#,
    );
    let open = || WebshopSet::open(folder.path(), None, &WebshopOptions::default());
    let set = open().unwrap();
    // The official files are not asked again.
    write("items_shuffle.json", "[");
    let again = open().unwrap();
    for set in [&set, &again] {
        let catalogue = set.shop().catalogue();
        assert_eq!((set.len(), catalogue.len(), catalogue.find("A1")), (1, 2, Some(1)));
        assert_eq!(set.shop().search("tea").unwrap(), [1]);
        // The first draw of Python's `random` with seed 42, between 9 and 12.
        assert_eq!(catalogue.price(0), 9.0 + 3.0 * 0.639_426_798_457_883_7);
    }
    let task = set.task(0).unwrap();
    let mut shop = set.webshop();
    shop.reset(&task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
    let step = play(&mut shop, &["search[red mug]", "click[b1]", "click[buy now]"]);
    assert!(step.success);

    let built = folder.path().join("turnwise-shop/catalogue.bin");
    let bytes = std::fs::read(&built).unwrap();
    drop((set, again, shop));
    std::fs::write(&built, &bytes[..bytes.len() / 2]).unwrap();
    assert!(open().unwrap_err().to_string().contains("not a whole catalogue file"));
    // What was interrupted before the end starts again, here from official files that are broken.
    std::fs::remove_file(&built).unwrap();
    assert!(open().unwrap_err().to_string().contains("the file ends too early"));
    assert!(!built.exists());
}

#[test]
fn odd_lines_are_counted_and_broken_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "items_ins_v2_1000.json",
        r#"{"A": {"instruction": "Find me", "instruction_attributes": ["safe"]}}"#,
    );
    let document = |asin: &str, name: &str| {
        format!(
            r#"{{"product": {{"asin": "{asin}", "name": {name}, "full_description": "d", "small_description": [],
            "pricing": [5.0], "customization_options": "", "product_category": "A", "category": "c", "query": "q"}}}}"#
        )
        .replace('\n', " ")
    };
    let lines = [document("A", "\"Mug\""), document("B", "null"), document("C", "\"Pot\"")].join("\n");
    write("products_1000_documents.jsonl", &lines);
    let set = WebshopSet::open(folder.path(), None, &WebshopOptions::default()).unwrap();
    assert_eq!((set.shop().catalogue().len(), set.len()), (2, 1));
    let [left_out, nouns] = set.notes().try_into().unwrap();
    assert!(
        left_out.starts_with("1 of 3 products") && left_out.contains("documents.jsonl, line 2: "),
        "{left_out}"
    );
    assert!(nouns.contains("no `nouns.jsonl`") && nouns.contains("type_stand_in"), "{nouns}");

    // With nouns the type factor is exact and there is nothing to say of it.
    write(
        "nouns.jsonl",
        "{\"title\": \"Mug\", \"nouns\": [\"mug\"]}\n{\"title\": \"Pot\", \"nouns\": [\"pot\"]}\n",
    );
    let set = WebshopSet::open(folder.path(), None, &WebshopOptions::default()).unwrap();
    assert_eq!(set.notes().len(), 1);
    let pot = set.shop().catalogue().product(1).unwrap();
    let kind = set.judge(&set.task(0).unwrap().id).unwrap().type_score(&pot);
    assert_eq!((kind.title_score, kind.type_stand_in), (0.0, false));

    write("products_1000_documents.jsonl", &lines[..lines.len() - 9]);
    let error = WebshopSet::open(folder.path(), None, &WebshopOptions::default()).unwrap_err().to_string();
    assert!(error.contains("line 3: ") && error.contains("the file ends too early"), "{error}");
}

#[test]
fn many_processes_build_one_shop_and_keep_its_goals() {
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join("shop");
    let config = GeneratorConfig { seed: 0, products: 300 };
    let options = WebshopOptions { goals_per_product: Some(3), ..WebshopOptions::default() };
    // File locks are held by open files, so threads race for them as processes do.
    let goals = |set: &WebshopSet| (0..set.len()).map(|index| set.goal(index).unwrap()).collect::<Vec<_>>();
    let all: Vec<_> = std::thread::scope(|scope| {
        let open = || goals(&WebshopSet::generated_in(&built, config, &options).unwrap());
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let memory = WebshopSet::generated(config, &options).unwrap();
    assert!(all.iter().all(|found| *found == goals(&memory)));

    // The next start reads the goals from their file: it sees what was written there, and not if that is cut.
    let file = |built: &std::path::Path| {
        let mut files = std::fs::read_dir(built).unwrap().map(|entry| entry.unwrap().path());
        files.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("goals-")).unwrap()
    };
    let inside = {
        let mut folders = std::fs::read_dir(&built).unwrap().map(|entry| entry.unwrap().path());
        let only = folders.next().unwrap();
        assert_eq!(folders.next(), None);
        only
    };
    let path = file(&inside);
    let whole = std::fs::read(&path).unwrap();
    let open = || WebshopSet::generated_in(&built, config, &options).unwrap();
    assert_eq!(open().split("test").unwrap(), memory.split("test").unwrap());
    let mut changed = whole.clone();
    let start = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    changed[start + 8..start + 12].copy_from_slice(&7u32.to_le_bytes());
    std::fs::write(&path, &changed).unwrap();
    assert_eq!(open().goal(0).unwrap().price_upper, 70.0);
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(goals(&open()), goals(&memory));
    // Other options are other goals, in a file of their own.
    let other = WebshopOptions { seed: 7, ..options.clone() };
    let (mapped, memory) = (
        WebshopSet::generated_in(&built, config, &other).unwrap(),
        WebshopSet::generated(config, &other).unwrap(),
    );
    assert_eq!(goals(&mapped), goals(&memory));
    // No half-built folder is left behind.
    let names = std::fs::read_dir(&inside).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_str().unwrap().starts_with(".building")));
    // Other products are another shop, not these files.
    let other = WebshopSet::generated_in(&built, GeneratorConfig { seed: 1, ..config }, &options).unwrap();
    assert_eq!(
        goals(&other),
        goals(&WebshopSet::generated(GeneratorConfig { seed: 1, ..config }, &options).unwrap())
    );
}

#[test]
fn nouns_of_a_mapped_catalogue_follow_their_side_file() {
    let built = tempfile::tempdir().unwrap();
    let config = GeneratorConfig { seed: 0, products: 20 };
    let open = || WebshopSet::generated_in(built.path(), config, &WebshopOptions::default()).unwrap();
    let set = open();
    let title = set.shop().catalogue().product(3).unwrap().title.clone();
    assert!(
        set.notes()[0].contains("nouns.jsonl") && set.shop().catalogue().product(3).unwrap().nouns.is_none()
    );
    for nouns in [vec!["a", "b", "a"], vec!["c"]] {
        let line = serde_json::json!({"title": title, "nouns": nouns});
        std::fs::write(built.path().join("nouns.jsonl"), line.to_string()).unwrap();
        let set = open();
        assert!(set.notes().is_empty());
        let of = |index| set.shop().catalogue().product(index).unwrap().nouns.clone();
        assert_eq!((of(2), of(3)), (None, Some(nouns.iter().map(|noun| (*noun).to_owned()).collect())));
    }
}
