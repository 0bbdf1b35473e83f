use super::*;

fn render(source: &str, messages: &[Message], options: &RenderOptions) -> Result<String, TextError> {
    ChatTemplate::from_source(source)?.render(messages, options)
}

fn say(source: &str) -> String {
    render(source, &[Message::user("hi")], &RenderOptions::default()).unwrap()
}

#[test]
fn generation_tags_do_nothing_but_trim() {
    let source =
        "a\n{%- generation -%}  b {{ 1 }}  {%- endgeneration %}\nc {% generation %}d{%+ endgeneration +%}e";
    assert_eq!(say(source), "ab 1c de");
}

#[test]
fn refusals_name_the_line() {
    let source = "{% if messages|length == 1 %}\n{{ raise_exception('two messages, please') }}\n{% endif %}";
    let error = render(source, &[Message::user("hi")], &RenderOptions::default()).unwrap_err().to_string();
    assert!(error.contains("two messages, please") && error.contains("line 2"), "{error}");
    let error = ChatTemplate::from_source("{% if %}").unwrap_err().to_string();
    assert!(error.contains("line 1"), "{error}");
}

#[test]
fn the_clock_stands_still_unless_told() {
    let source = "{{ strftime_now('%d %B %Y') }}";
    assert_eq!(say(source), "26 July 2024");
    let template = ChatTemplate::from_source(source).unwrap().at(0);
    assert_eq!(template.render(&[], &RenderOptions::default()).unwrap(), "01 January 1970");
}

#[test]
fn a_named_template_is_chosen_by_what_is_asked() {
    let sources = [("default", "plain"), ("tool_use", "tools {{ tools|length }}"), ("rag", "rag")];
    let sources = sources.map(|(name, source)| (name.to_owned(), source.to_owned()));
    let template = ChatTemplate::new(sources.into(), BTreeMap::new()).unwrap();
    let tools = vec![Tool::from_json("{}").unwrap()];
    let options = RenderOptions { tools, ..RenderOptions::default() };
    assert_eq!(template.render(&[], &options).unwrap(), "tools 1");
    assert_eq!(template.render(&[], &RenderOptions::default()).unwrap(), "plain");
    let none = ["a", "b"].map(|name| (name.to_owned(), String::new()));
    assert!(ChatTemplate::new(none.into(), BTreeMap::new()).unwrap_err().to_string().contains("`default`"));
    let error = ChatTemplate::new(BTreeMap::new(), BTreeMap::new()).unwrap_err().to_string();
    assert!(error.contains("there is no chat template") && !error.contains("several"), "{error}");
}

#[test]
fn reasoning_goes_by_any_of_its_names() {
    let message = Message::from_json(r#"{"role": "assistant", "content": "a", "reasoning": "r"}"#).unwrap();
    let source = "{{ messages[0].reasoning_content }} {{ messages[0].thinking }}";
    assert_eq!(render(source, &[message], &RenderOptions::default()).unwrap(), "r r");
    assert!(Message::from_json(r#"{"content": "a"}"#).is_err());
    assert!(Message::from_json("[").is_err());
}

#[test]
fn slices_with_a_step_stand_wherever_slices_may() {
    for (source, expected) in [
        ("{{ 'abc'[::-1][0] }}{{ 'abc'[::-1][1:] }}", "cba"),
        ("{{ [1, 2, 3][::-1][0] }} {{ [1, 2, 3][::-1] }} {{ [][::-1] | length }}", "3 [3, 2, 1] 0"),
        ("{{ [[1, 2], [3]][::-1][1][::-1] }}", "[2, 1]"),
        ("{{ messages[::-1][0].content }}{{ (1, 2)[::-1] | first }}", "hi2"),
        ("{{ {'a': {'b': 'xy'[::-1]}} }}", "{'a': {'b': 'yx'}}"),
        ("{% raw %}{{ x[::-1] }}{% endraw %}", "{{ x[::-1] }}"),
        ("{{ none[::-1] }}{{ {}[::-1] }}", ""),
        ("{{ [][2:0:-1] }}{{ [1, 2, 3, 4][3:0:-2] }}{{ 'abc'[0::2] }}", "[][4, 2]ac"),
    ] {
        assert_eq!(say(source), expected, "{source}");
    }
    let error = render("{{ x[::-1] }}", &[], &RenderOptions::default()).unwrap_err().to_string();
    assert!(error.contains("undefined"), "{error}");
}

#[test]
fn line_breaks_of_other_systems_are_no_text() {
    let source = "{% if true %}\r\na\r\n{% endif %}\r\nb\rc\r\n";
    assert_eq!(say(source), "a\nb\nc");
    let template = ChatTemplate::from_source(source).unwrap();
    assert_eq!(template.source(), source, "it is kept as it was written");
}

#[test]
fn json_is_indented_within_bounds() {
    assert_eq!(say("{{ [1] | tojson(indent=64) }}"), format!("[\n{}1\n]", " ".repeat(64)));
    for indent in ["65", "10000000000000"] {
        let source = format!("{{{{ [1] | tojson(indent={indent}) }}}}");
        let error = render(&source, &[], &RenderOptions::default()).unwrap_err().to_string();
        assert!(error.contains("indent") && error.contains("64"), "{error}");
    }
}

fn refused(source: &str) -> String {
    let started = std::time::Instant::now();
    let error = render(source, &[Message::user("hi")], &RenderOptions::default()).unwrap_err().to_string();
    assert!(started.elapsed().as_secs() < 20, "{:?}: {:.200}", started.elapsed(), source);
    error
}

#[test]
fn a_template_cannot_loop_without_end() {
    let numbers = "range(100000)";
    let loops = format!("{{% for a in {numbers} %}}{{% for b in {numbers} %}}{{% endfor %}}{{% endfor %}}");
    let error = refused(&loops);
    assert!(error.contains("more than 2000000 steps"), "{error}");
    // The longest realistic conversation.
    let messages = vec![Message::user("hi"); 5000];
    let source = "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' ~ m.content|trim }}{% endfor %}";
    assert_eq!(
        render(source, &messages, &RenderOptions::default()).unwrap().len(),
        5000 * "<|user|>hi".len()
    );
}

#[test]
fn a_template_cannot_nest_without_end() {
    for source in [
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) }}",
        "{% for x in [[]] recursive %}{{ loop([[]]) }}{% endfor %}",
    ] {
        let error = refused(source);
        assert!(error.contains("recursion"), "{error}");
    }
    // Nested values: printed, as JSON, and dropped.
    let nested =
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    for print in ["{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x | string }}", "{{ raise_exception(ns.x) }}"] {
        let error = refused(&format!("{nested}{print}"));
        assert!(error.contains("more than 100 lists and maps inside each other"), "{error}");
    }
    assert_eq!(say(&format!("{nested}done")), "done");
    let deepest = nested.replace("{% for", "{% for j in range(100) %}{% for") + "{% endfor %}";
    assert!(refused(&deepest).contains("more than 2000000 steps"), "{}", refused(&deepest));
    let brackets = format!("{{{{ {}1{} }}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(refused(&brackets).contains("recursion"), "{}", refused(&brackets));
    let blocks = format!("{}{}", "{% if true %}".repeat(20_000), "{% endif %}".repeat(20_000));
    assert!(refused(&blocks).contains("recursion"), "{}", refused(&blocks));
    let long = |link: &str, count: usize| format!("{{{{ messages{} }}}}", link.repeat(count));
    for link in ["+messages", "~1", "|list", ".x", "[0]", " or messages", " if 1 else messages", " is x"] {
        let error = refused(&long(link, 40_000));
        assert!(error.contains("in one tag; at most 5000 are supported"), "{error}");
    }
    for sign in ["not ", "-"] {
        let error = refused(&format!("{{{{ {}1 }}}}", sign.repeat(80_000)));
        assert!(error.contains("in one tag; at most 5000 are supported"), "{error}");
    }
    let branches = |count: usize| format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(count));
    assert!(refused(&branches(80_000)).contains("80000 `elif` tags; at most 5000"));
    assert_eq!(say(&branches(5000)), "");
    assert_eq!(say(&long("|list", 4990).replace(" }}", "|length }}")), "1");
    assert_eq!(say(&format!("{{{{ 1{} }}}}", "+1".repeat(4990))), "4991");
}

#[test]
fn a_template_cannot_print_or_keep_texts_without_end() {
    let forty = |body: &str| {
        format!("{{% set ns = namespace(x='ab') %}}{{% for i in range(40) %}}{body}{{% endfor %}}")
    };
    let with = |depth: usize, tag: &str| {
        format!("{{% set x = 'a' * 1000000 %}}{}{}", tag.repeat(depth), "{% endwith %}".repeat(depth))
    };
    for (source, reason) in [
        (forty("{% set ns.x = ns.x ~ ns.x %}"), "`~` makes more than"),
        (forty("{% set ns.x = ns.x + ns.x -%}"), "`+` makes more than"),
        (forty("{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}"), "prints more than"),
        ("{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('ab') }}".into(), "`~` makes more than"),
        (with(20, "{% with x = x ~ x %}"), "`~` makes more than"),
        (with(20, "{%- with(x, y) = (x ~ x, 'it\\'s') -%}"), "`~` makes more than"),
        (with(20, "{% for x in [x ~ x] -%}").replace("endwith", "endfor"), "`~` makes more than"),
        ("{% for x in ['ab'] recursive %}{{ loop([x ~ x]) }}{% endfor %}".into(), "`~` makes more than"),
        (
            "{% macro f(x) %}{{ caller(x ~ x) }}{% endmacro %}\
             {% call(y) f('a' * 10000000) %}{{ y | length }}{% endcall %}"
                .into(),
            "`~` makes more than",
        ),
        ("{% set x = 'ab' %}".to_owned() + &"{% set(x) = x ~ x %}".repeat(40), "`~` makes more than"),
        // A variable does not replace the check.
        (
            "{% set turnwise_check = debug %}".to_owned() + &forty("{% set ns.x = ns.x ~ ns.x %}"),
            "`~` makes more than",
        ),
        (forty("{% set ns.x = [ns.x, ns.x] %}") + "{{ ns.x }}", "a printed or compared value has more than"),
        (
            forty("{% set ns.x = [ns.x, ns.x] %}") + "{{ ns.x | tojson }}",
            "a printed or compared value has more than",
        ),
        ("{% set x = ['ab'] %}".to_owned() + &"{% set x = x + x %}".repeat(40), "a list has more than"),
        (format!("{{% for i in range(100000) %}}{}{{% endfor %}}", "a".repeat(1000)), "prints more than"),
        (
            format!(
                "{{% set x %}}{{% for i in range(100000) %}}{}{{% endfor %}}{{% endset %}}{{{{ x | length }}}}",
                "a".repeat(1000)
            ),
            "prints more than",
        ),
        (
            format!("{{% macro f() %}}{}{{% endmacro %}}", "a".repeat(100_000))
                + "{% for i in range(1000) %}{% if f() == '' %}{% endif %}{% endfor %}",
            "prints more than",
        ),
        (
            format!("{{% filter upper %}}{}{{% endfilter %}}", forty("{{ 'a' * 1000000 }}")),
            "prints more than",
        ),
        ("{% for i in range(100) %}{{ 'a' * 1000000 }}{% endfor %}".into(), "prints more than"),
        ("{{ ('a' * 100000) | replace('a', 'b' * 100000) | length }}".into(), "`replace` makes more than"),
        ("{{ ('a' * 100000) | replace('', 'b' * 100000) | length }}".into(), "`replace` makes more than"),
        ("{{ ('a' * 100000).replace('a', 'b' * 100000) | length }}".into(), "`replace` makes more than"),
        ("{{ range(100000) | join('b' * 100000) | length }}".into(), "`join` makes more than"),
        ("{{ ('b' * 100000).join(['a'] * 100000) | length }}".into(), "`join` makes more than"),
        ("{{ ('a\n' * 10000) | indent(100000) | length }}".into(), "`indent` makes more than"),
        ("{{ ('a\n' * 10000) | indent(width=100000) | length }}".into(), "`indent` makes more than"),
        ("{{ ['a' * 100000] | replace('a', 'b' * 100000) | length }}".into(), "`replace` makes more than"),
        ("{{ ('a' * 100000) | replace('a', ['b' * 100000]) | length }}".into(), "`replace` makes more than"),
        ("{{ '%1000000000s' | format('a') | length }}".into(), "`format` makes more than"),
        ("{{ '%(a)-1000000000s' | format({'a': 1}) | length }}".into(), "`format` makes more than"),
        (
            "{{ ('%(a)s' * 100000) | format({'a': 'b' * 100000}) | length }}".into(),
            "`format` makes more than",
        ),
        ("{{ '{:x>1000000000}'.format('a') | length }}".into(), "`format` makes more than"),
        ("{{ ([1] * 1000000) | zip([1], [2]) | list | length }}".into(), "`zip` makes more than"),
        ("{{ [1] | batch(10000000000) | length }}".into(), "`batch` makes more than"),
        ("{{ [1] | slice(10000000000) | length }}".into(), "`slice` makes more than"),
    ] {
        let error = refused(&source);
        assert!(error.contains(reason), "{error}: {source}");
    }
    let error = ChatTemplate::from_source(&" ".repeat(2 << 20)).unwrap_err().to_string();
    assert!(error.contains("at most 1048576 are read"), "{error}");
}

#[test]
fn a_template_cannot_compute_without_end() {
    let twins = "{% set a = namespace(x=[1]) %}{% set b = namespace(x=[1]) %}{% for i in range(40) %}\
                 {% set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}{% endfor %}";
    let nested = "a printed or compared value has more than";
    for (source, reason) in [
        (
            "{% for i in range(100) %}{% if ('a' * (99000000 + i)) == 'b' %}x{% endif %}{% endfor %}".into(),
            "`*` makes more than",
        ),
        // Constants take no memory when a template is loaded.
        ("{% set x = 'a' * 99999999 %}".repeat(1000), "`*` makes more than"),
        ("{{ ('a'*99999999 ~ 'a'*99999999 + 'a'*99999999) | length }}".into(), "`*` makes more than"),
        ("{{ ([1] * 1000000000000) | list | length }}".into(), "`*` makes more than"),
        ("{{ (1000000000000 * [1]) | list | length }}".into(), "`*` makes more than"),
        ("{{ (4 // 2 * 'a' * 10000000) | length }}".into(), "`*` makes more than"),
        (
            "{% set x = 'a' * 16000000 %}{% for i in range(1000) %}{% if x.strip() == i %}{% endif %}{% endfor %}"
                .into(),
            "makes more than 2147483648 bytes of texts and lists",
        ),
        (
            "{% set x = 'a' * 16000000 %}{% for i in range(1000) %}{% if x | trim == i %}{% endif %}{% endfor %}"
                .into(),
            "makes more than 2147483648 bytes of texts and lists",
        ),
        (twins.to_owned() + "{{ a.x == b.x }}", nested),
        (twins.to_owned() + "{{ [] != a.x < b.x }}", nested),
        (twins.to_owned() + "{{ a.x in [b.x] }}", nested),
        (twins.to_owned() + "{{ a.x is eq b.x }}", nested),
        (twins.to_owned() + "{{ [a.x, b.x] | sort | length }}", nested),
        (twins.to_owned() + "{{ [a.x, b.x] | unique | length }}", nested),
        (twins.to_owned() + "{{ a.x | upper }}", nested),
        (twins.to_owned() + "{{ a.x ~ 'b' }}", nested),
        (twins.to_owned() + "{{ [a.x].count(b.x) }}", nested),
        (twins.to_owned() + "{{ debug(a.x) }}", "debug is unknown"),
    ] {
        let error = refused(&source);
        assert!(error.contains(reason), "{error}: {source:.200}");
    }
    assert_eq!(say("{{ 'abc'.count('') }} {{ 'abcb'.count('b') }}"), "4 2");
}

#[test]
fn operators_with_limits_compute_as_before() {
    for (source, expected) in [
        ("{{ 1 + 2 }} {{ 1.5 + 2 }} {{ 1 - 1 + 1 }} {{ -1 + 2 * 3 }}", "3 3.5 1 5"),
        ("{{ 9223372036854775807 + 1 }} {{ true + 1 }}", "9223372036854775808 2"),
        ("{{ 'a' + 'b' ~ 1 + 'c' ~ missing }}", "ab1c"),
        ("{{ [1] + [2] * 2 }} {{ 2 * [1] }}", "[1, 2, 2] [1, 1]"),
        ("{{ 'ab' * 2 }} {{ 2 * 'ab' }} {{ 7 // 2 * 'ab' }} {{ 'ab' * 0 }}", "abab abab ababab "),
        ("{{ 2 ** 3 * 2 }} {{ 2 * 3 ** 2 }} {{ 7 % 4 * 2 }} {{ 1 + 6 / 2 }}", "16 18 6 4.0"),
        (
            "{{ not 1 + 1 == 2 }} {{ 1 < 2 < 3 }} {{ 'b' ~ 'c' in 'abc' }} {{ 1 not in [2] }}",
            "False True True True",
        ),
        ("{{ missing == 1 }} {{ missing[1:] | length }} {{ none[1:] | length }}", "False 0 0"),
        ("{{ 'abc'[1:] ~ 'abc'[:-1] }} {{ [1, 2, 3][1:][0] }}", "bcab 2"),
        ("{% for x in [1] recursive %}{{ x ~ (loop([]) ~ 'a') }}{% endfor %}", "1a"),
        ("{{ '%s-%03d' | format('a', 7) }} {{ '{} {:>3}'.format('a', 'b') }}", "a-007 a   b"),
        ("{{ [3, 1, 2] | sort | join('-') }} {{ ['a'] | map('upper') | join }}", "1-2-3 A"),
        ("{{ [1, 2] | select('gt', 1) | list }} {{ 'b' is in ['a', 'b'] }}", "[2] True"),
    ] {
        assert_eq!(say(source), expected, "{source}");
    }
    for (source, reason) in [
        ("a\n{{ none + 1 }}", "tried to use + operator on unsupported types none and number"),
        ("a\n{{ 'a' * 'b' }}", "strings can only be multiplied with integers"),
    ] {
        let error = render(source, &[], &RenderOptions::default()).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("line 2"), "{error}");
    }
}
