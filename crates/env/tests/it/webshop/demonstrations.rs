//! Tests of the WebShop expert and its demonstrations.

use std::collections::BTreeSet;

use turnwise_core::{Action, Environment as _, Purpose, Seed};
use turnwise_env::demonstration::{Demonstration, DemonstrationRequest};
use turnwise_env::parse::offered;
use turnwise_env::prompt::{PromptTemplate, PromptView};
use turnwise_env::webshop::demonstrations::demonstrate;
use turnwise_env::webshop::generator::GeneratorConfig;
use turnwise_env::webshop::goal::GoalKind;
use turnwise_env::webshop::reward::Reward;
use turnwise_env::webshop::{WebshopOptions, WebshopSet};

fn of(count: usize) -> DemonstrationRequest<'static> {
    DemonstrationRequest { count, ..DemonstrationRequest::default() }
}

#[test]
fn the_expert_reaches_generated_goals() {
    let config = GeneratorConfig { seed: 0, products: 2000 };
    for (goals, least) in [(GoalKind::Synthetic, 320), (GoalKind::Human, 280)] {
        let options = WebshopOptions { goals, goals_per_product: Some(1), ..WebshopOptions::default() };
        let set = WebshopSet::generated(config, &options).unwrap();
        assert_eq!(set.len(), 2000);
        let made = demonstrate(&set, &of(400), 0.0).unwrap();
        let steps: usize = made.episodes.iter().map(|episode| episode.turns.len()).sum();
        println!("{goals:?}: {} of 400, {steps} steps", made.episodes.len());
        assert!(made.episodes.len() >= least, "{goals:?}: {} of 400", made.episodes.len());
        let episode = &made.episodes[7];
        let mut shop = set.webshop();
        let mut observation =
            shop.reset(&episode.task, Seed::derive(0, Purpose::Environment, &[])).unwrap().into_text();
        for turn in &episode.turns {
            assert_eq!(observation, turn.observation);
            observation = shop.step(&Action::from(&turn.action)).unwrap().observation.into_text();
        }
        assert!(shop.score().is_some_and(|score| score.success()));
    }
}

#[test]
fn demonstrations_mark_their_mistakes() {
    let config = GeneratorConfig { seed: 0, products: 240 };
    let set = WebshopSet::generated(config, &WebshopOptions::default()).unwrap();
    let request = DemonstrationRequest { invalid_action_prob: 0.2, keep_admissible: true, ..of(60) };
    let made = |seed| demonstrate(&set, &DemonstrationRequest { seed, ..request }, 0.0).unwrap();
    let played = made(3);
    assert_eq!(played, made(3));
    assert_ne!(played, made(4));
    let turns: Vec<_> = played.episodes.iter().flat_map(|episode| &episode.turns).collect();
    let mistakes = turns.iter().filter(|turn| !turn.imitate).count();
    // The first page of an episode has no inserted action, since nothing was seen yet.
    assert!((0.1..0.2).contains(&(mistakes as f64 / turns.len() as f64)), "{mistakes} of {}", turns.len());
    for episode in &played.episodes {
        assert!(episode.turns[0].imitate);
        for pair in episode.turns.windows(2) {
            if !pair[0].imitate {
                assert_eq!(pair[0].observation, pair[1].observation);
                assert!(!offered(&pair[0].admissible, &pair[0].action), "{}", pair[0].action);
            }
        }
    }
    let wrong = DemonstrationRequest { invalid_action_prob: 1.0, ..of(1) };
    assert!(demonstrate(&set, &wrong, 0.0).unwrap_err().to_string().contains("invalid_action_prob"));
}

#[test]
fn a_noisy_expert_misses_options_and_nothing_else() {
    let config = GeneratorConfig { seed: 0, products: 240 };
    let set = WebshopSet::generated(config, &WebshopOptions::default()).unwrap();
    let made = |option_drop_prob| demonstrate(&set, &of(200), option_drop_prob).unwrap().episodes;
    let (careful, noisy) = (made(0.0), made(0.6));
    // Skipping options does not drop episodes that reach their goal otherwise.
    let tasks = |episodes: &[Demonstration]| -> BTreeSet<String> {
        episodes.iter().map(|episode| episode.task.id.clone()).collect()
    };
    assert!(tasks(&careful).is_subset(&tasks(&noisy)));
    let (mut asked, mut met, mut reached) = (0, 0, 0);
    for episode in &noisy {
        let mut shop = set.webshop();
        shop.reset(&episode.task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
        for turn in &episode.turns {
            shop.step(&Action::from(&turn.action)).unwrap();
        }
        let score = shop.score().unwrap();
        assert_eq!((score.attributes, score.price), (score.attributes_asked, true));
        asked += score.options_asked;
        met += score.options;
        reached += usize::from(score.success());
    }
    let share = met as f64 / asked as f64;
    assert!((0.35..0.5).contains(&share), "{met} of {asked} options");
    assert!(reached * 2 < noisy.len() && reached > 0, "{reached} of {}", noisy.len());
    assert!(demonstrate(&set, &of(1), 1.0).unwrap_err().to_string().contains("option_drop_prob"));
}

#[test]
fn a_purchase_is_rewarded_with_success_or_score() {
    let config = GeneratorConfig { seed: 0, products: 240 };
    let played = |reward| {
        let set = WebshopSet::generated(config, &WebshopOptions { reward, ..Default::default() }).unwrap();
        let made = demonstrate(&set, &of(60), 0.6).unwrap();
        let last = |episode: &Demonstration| {
            assert!(episode.turns.iter().rev().skip(1).all(|turn| turn.reward == 0.0));
            episode.turns.last().unwrap().reward
        };
        made.episodes.iter().map(last).collect::<Vec<f64>>()
    };
    let (success, score) = (played(Reward::Success), played(Reward::Score));
    assert!(score.iter().any(|score| (0.2..0.9).contains(score)));
    let whole: Vec<f64> = score.iter().map(|score| f64::from(*score == 1.0)).collect();
    assert_eq!(success, whole);
}

#[test]
fn phrases_are_parts_of_pages() {
    let config = GeneratorConfig { seed: 0, products: 240 };
    let set = WebshopSet::generated(config, &WebshopOptions::default()).unwrap();
    let template = PromptTemplate::named("webshop-compact").unwrap();
    let made = demonstrate(&set, &of(60), 0.0).unwrap();
    let mut text = String::new();
    for episode in &made.episodes {
        for (step, turn) in episode.turns.iter().enumerate() {
            let view = PromptView {
                goal: &episode.task.goal,
                history: &[],
                window: 0,
                observation: &turn.observation,
                admissible: &[],
                step,
            };
            text.push_str(&if step == 0 {
                template.render_concatenated_first(&view)
            } else {
                template.render_concatenated_next(&view, true)
            });
            text.push_str(&template.response(&turn.action));
        }
    }
    let phrases = set.phrases().unwrap();
    let (identifiers, words): (Vec<&String>, Vec<&String>) =
        phrases.iter().partition(|phrase| set.shop().catalogue().find(&phrase.to_uppercase()).is_some());
    assert_eq!(identifiers.len(), 240);
    // The list also contains items that the expert never clicks.
    let absent: Vec<&String> = words.into_iter().filter(|phrase| !text.contains(phrase.as_str())).collect();
    assert!(absent.len() < 10, "{absent:?}");
    let absent = identifiers.iter().filter(|phrase| !text.contains(phrase.as_str())).count();
    assert!(absent < 60, "{absent} products are never listed");
    let larger =
        WebshopSet::generated(GeneratorConfig { seed: 0, products: 4_001 }, &WebshopOptions::default());
    assert!(larger.unwrap().phrases().unwrap().len() < 100);
}
