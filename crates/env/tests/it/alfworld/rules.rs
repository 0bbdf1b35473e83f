//! All commands, feedback and special rules of ALFWorld in a hand-written kitchen.

use std::sync::Arc;

use super::kitchen::{CLEAN, COOL, HEAT, LOOK, SIMPLE, TWO};
use turnwise_env::alfworld::{Command, Episode, Game, TaskType};

struct Play(Episode);

impl Play {
    fn new(goal: &str) -> Self {
        let game = Game::parse("games/kitchen/1/game.tw-pddl", &super::kitchen::file(goal)).unwrap();
        Self(Episode::new(Arc::new(game)))
    }

    fn act(&mut self, action: &str) -> &str {
        let listed = self.0.admissible().iter().any(|listed| listed == action.trim());
        let outcome = self.0.step(action);
        assert_eq!(outcome.understood, listed, "{action}");
        self.0.observation()
    }

    fn all(&mut self, actions: &[&str]) -> &str {
        for action in actions {
            assert_ne!(self.act(action), "Nothing happens.", "{action}");
        }
        self.0.observation()
    }

    fn lists(&self, start: &str) -> Vec<String> {
        self.0.admissible().into_iter().filter(|command| command.starts_with(start)).collect()
    }

    fn progress(&self) -> f64 {
        self.0.progress()
    }
}

const NOTHING: &str = "Nothing happens.";

#[test]
fn the_introduction_lists_every_receptacle_with_numbers_going_down() {
    let play = Play::new(SIMPLE);
    assert_eq!(
        play.0.observation(),
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you \
         see a bathtubbasin 1, a cabinet 1, a countertop 1, a fridge 1, a microwave 1, a shelf 11, a shelf 10, a \
         shelf 9, a shelf 8, a shelf 7, a shelf 6, a shelf 5, a shelf 4, a shelf 3, a shelf 2, a shelf 1, and a \
         sinkbasin 1.\n\nYour task is to: tidy up."
    );
}

#[test]
fn the_start_list_is_in_byte_order() {
    let play = Play::new(SIMPLE);
    assert_eq!(
        play.0.admissible(),
        [
            "go to bathtubbasin 1",
            "go to cabinet 1",
            "go to countertop 1",
            "go to fridge 1",
            "go to microwave 1",
            "go to shelf 1",
            "go to shelf 10",
            "go to shelf 11",
            "go to shelf 2",
            "go to shelf 3",
            "go to shelf 4",
            "go to shelf 5",
            "go to shelf 6",
            "go to shelf 7",
            "go to shelf 8",
            "go to shelf 9",
            "go to sinkbasin 1",
            "help",
            "inventory",
            "look",
        ]
    );
}

#[test]
fn receptacles_that_share_a_place_are_reached_together() {
    let mut play = Play::new(SIMPLE);
    assert_eq!(
        play.act("go to countertop 1"),
        "You arrive at countertop 1. On the countertop 1, you see a apple 2, a knife 1, a mug 1, and a spoon 1."
    );
    assert_eq!(play.lists("go to ").len(), 14);
    assert_eq!(play.lists("examine "), ["examine cabinet 1", "examine countertop 1", "examine shelf 11"]);
    assert_eq!(play.act("go to cabinet 1"), NOTHING);
    assert_eq!(play.act("go to countertop 1"), NOTHING);
    assert_eq!(
        play.act("look"),
        "You are facing the cabinet 1, countertop 1, and shelf 11. Next to it, you see nothing."
    );
    assert_eq!(play.act("examine shelf 11"), "On the shelf 11, you see nothing.");
    assert_eq!(play.act("examine cabinet 1"), "The cabinet 1 is closed.");
    assert_eq!(
        play.act("open cabinet 1"),
        "You open the cabinet 1. The cabinet 1 is open. In it, you see a desklamp 1."
    );
    assert_eq!(play.act("open cabinet 1"), NOTHING);
    assert_eq!(play.act("close cabinet 1"), "You close the cabinet 1.");
    assert_eq!(play.act("close cabinet 1"), NOTHING);
}

#[test]
fn looking_before_going_anywhere_shows_nothing() {
    let mut play = Play::new(SIMPLE);
    assert_eq!(
        play.act("look"),
        "You are in the middle of a room. Looking quickly around you, you see nothing."
    );
    assert_eq!(play.act("inventory"), "You are not carrying anything.");
}

#[test]
fn the_help_lists_the_commands() {
    let mut play = Play::new(SIMPLE);
    let help = play.act("help").to_owned();
    assert!(help.starts_with("Available commands:\n  look:") && help.ends_with("sharp object\n"), "{help}");
    assert_eq!(help.lines().count(), 14);
}

#[test]
fn taking_and_moving() {
    let mut play = Play::new(SIMPLE);
    play.act("go to countertop 1");
    assert_eq!(
        play.lists("take "),
        [
            "take apple 2 from countertop 1",
            "take knife 1 from countertop 1",
            "take mug 1 from countertop 1",
            "take spoon 1 from countertop 1"
        ]
    );
    assert_eq!(play.act("take apple 2 from countertop 1"), "You pick up the apple 2 from the countertop 1.");
    assert!(play.lists("take ").is_empty(), "hands are full");
    assert_eq!(play.act("take mug 1 from countertop 1"), NOTHING);
    assert_eq!(play.act("inventory"), "You are carrying: a apple 2.");
    assert_eq!(play.lists("move "), ["move apple 2 to countertop 1", "move apple 2 to shelf 11"]);
    play.act("open cabinet 1");
    assert_eq!(play.lists("move ").len(), 3);
    assert_eq!(play.act("move apple 2 to cabinet 1"), "You move the apple 2 to the cabinet 1.");
    assert_eq!(
        play.act("examine cabinet 1"),
        "The cabinet 1 is open. In it, you see a apple 2, and a desklamp 1."
    );
    assert_eq!(play.lists("take ").len(), 4);
    play.act("close cabinet 1");
    assert_eq!(play.act("take apple 2 from cabinet 1"), NOTHING);
}

#[test]
fn a_move_between_neighbours_is_seen_beside_them() {
    let mut play = Play::new(TWO);
    play.all(&["go to countertop 1", "take knife 1 from countertop 1", "move knife 1 to shelf 11"]);
    let facing = "You are facing the cabinet 1, countertop 1, and shelf 11. Next to it, you see ";
    assert_eq!(play.act("look"), format!("{facing}a knife 1."));
    // A held knife is at no place; put back, it is next to the other one.
    play.act("take knife 1 from shelf 11");
    assert_eq!(play.act("look"), format!("{facing}nothing."));
    play.act("move knife 1 to countertop 1");
    assert_eq!(play.act("look"), format!("{facing}a knife 1."));
    // Taken from both and carried away, it is no longer here.
    play.all(&[
        "take knife 1 from countertop 1",
        "go to shelf 10",
        "move knife 1 to shelf 10",
        "go to shelf 11",
    ]);
    assert_eq!(play.act("look"), format!("{facing}nothing."));
}

#[test]
fn what_is_beside_two_neighbours_is_listed_for_each() {
    let mut play = Play::new(TWO);
    play.all(&[
        "go to countertop 1",
        "open cabinet 1",
        "take mug 1 from countertop 1",
        "move mug 1 to cabinet 1",
    ]);
    play.all(&["take mug 1 from cabinet 1", "move mug 1 to shelf 11"]);
    assert!(play.act("look").ends_with("you see a mug 1, and a mug 1."));
}

#[test]
fn an_object_can_be_in_two_receptacles() {
    let mut play = Play::new(SIMPLE);
    assert_eq!(play.act("go to shelf 9"), "You arrive at shelf 9. On the shelf 9, you see a vase 1.");
    play.all(&["take vase 1 from shelf 9", "go to shelf 8"]);
    assert_eq!(play.act("examine shelf 8"), "On the shelf 8, you see a vase 1.");
    play.all(&["move vase 1 to shelf 8", "take vase 1 from shelf 8"]);
    assert_eq!(play.act("examine shelf 8"), "On the shelf 8, you see nothing.");
}

#[test]
fn only_what_is_held_can_be_examined_and_the_first_line_that_fits_is_all() {
    let mut play = Play::new(SIMPLE);
    play.act("go to countertop 1");
    assert_eq!(play.act("examine apple 2"), NOTHING, "the domain's typing slip");
    play.act("take mug 1 from countertop 1");
    assert_eq!(
        play.lists("examine "),
        ["examine cabinet 1", "examine countertop 1", "examine mug 1", "examine shelf 11"]
    );
    assert_eq!(play.act("examine mug 1"), "This is a normal mug 1. In it, you see a spoon 1.");
    play.all(&["go to sinkbasin 1", "clean mug 1 with sinkbasin 1"]);
    assert_eq!(play.act("examine mug 1"), "This is a normal mug 1. In it, you see a spoon 1.");
    play.all(&["move mug 1 to sinkbasin 1", "go to countertop 1", "take spoon 1 from countertop 1"]);
    assert_eq!(play.act("examine spoon 1"), "There's nothing special about spoon 1.");
}

#[test]
fn heat_cold_and_cleanliness_have_their_words() {
    let mut play = Play::new(SIMPLE);
    play.all(&["go to countertop 1", "take apple 2 from countertop 1"]);
    assert_eq!(play.act("examine apple 2"), "There's nothing special about apple 2.");
    play.act("go to microwave 1");
    assert_eq!(play.act("heat apple 2 with microwave 1"), "You heat the apple 2 using the microwave 1.");
    assert_eq!(play.act("examine microwave 1"), "The microwave 1 is closed.", "heating needs no open door");
    assert_eq!(play.act("examine apple 2"), "This is a hot apple 2.");
    assert_eq!(play.act("cool apple 2 with microwave 1"), NOTHING);
    play.act("go to fridge 1");
    assert_eq!(play.act("cool apple 2 with fridge 1"), "You cool the apple 2 using the fridge 1.");
    assert_eq!(play.act("examine apple 2"), "This is a cold apple 2.");
    play.act("go to bathtubbasin 1");
    assert_eq!(play.act("clean apple 2 with bathtubbasin 1"), NOTHING, "a bathtub cleans nothing");
    play.act("go to sinkbasin 1");
    assert_eq!(play.act("clean apple 2 with sinkbasin 1"), "You clean the apple 2 using the sinkbasin 1.");
    assert_eq!(play.act("examine apple 2"), "This is a cool and clean apple 2.");
    play.all(&["go to microwave 1", "heat apple 2 with microwave 1"]);
    assert_eq!(play.act("examine apple 2"), "This is a hot and clean apple 2.");
}

#[test]
fn slicing_reaches_through_doors_and_has_its_words() {
    let mut play = Play::new(SIMPLE);
    play.all(&["go to countertop 1", "take knife 1 from countertop 1"]);
    assert_eq!(play.lists("slice "), ["slice apple 2 with knife 1"]);
    assert_eq!(play.act("slice apple 2 with knife 1"), "You sliced the apple 2 with the knife 1.");
    assert_eq!(play.lists("slice "), ["slice apple 2 with knife 1"], "again is no matter");
    play.act("go to fridge 1");
    assert_eq!(play.act("slice apple 1 with knife 1"), "You sliced the apple 1 with the knife 1.");
    play.all(&["go to sinkbasin 1", "clean knife 1 with sinkbasin 1"]);
    assert_eq!(play.act("examine knife 1"), "This is a clean knife 1.");
    play.all(&["go to shelf 11", "move knife 1 to shelf 11", "take apple 2 from countertop 1"]);
    assert_eq!(play.act("examine apple 2"), "This is a sliced apple 2.");
    assert_eq!(play.act("slice apple 2 with knife 1"), NOTHING);
    play.all(&["go to microwave 1", "heat apple 2 with microwave 1"]);
    assert_eq!(play.act("examine apple 2"), "This is a hot sliced apple 2.");
    play.all(&["go to sinkbasin 1", "clean apple 2 with sinkbasin 1"]);
    assert_eq!(play.act("examine apple 2"), "This is a hot and clean sliced apple 2.");
    play.all(&["go to fridge 1", "cool apple 2 with fridge 1"]);
    assert_eq!(play.act("examine apple 2"), "This is a cool and clean sliced apple 2.");
    // The other apple was cool from the start.
    play.all(&["open fridge 1", "move apple 2 to fridge 1", "take apple 1 from fridge 1"]);
    assert_eq!(play.act("examine apple 1"), "This is a cool sliced apple 1.");
}

#[test]
fn clean_and_sliced_without_heat_or_cold() {
    let mut play = Play::new(SIMPLE);
    play.all(&["go to shelf 10", "take butterknife 1 from shelf 10", "go to countertop 1"]);
    assert_eq!(
        play.act("slice apple 2 with butterknife 1"),
        "You sliced the apple 2 with the butterknife 1."
    );
    // In this kitchen no receptacle accepts butter knives.
    assert!(play.lists("move ").is_empty());
    let mut play = Play::new(SIMPLE);
    play.all(&["go to countertop 1", "take knife 1 from countertop 1", "slice apple 2 with knife 1"]);
    play.all(&["move knife 1 to countertop 1", "take apple 2 from countertop 1", "go to sinkbasin 1"]);
    play.act("clean apple 2 with sinkbasin 1");
    assert_eq!(play.act("examine apple 2"), "This is a clean sliced apple 2.");
}

#[test]
fn a_lamp_is_switched_on_through_a_closed_door_and_never_off() {
    let mut play = Play::new(LOOK);
    play.act("go to shelf 10");
    assert_eq!(play.act("use desklamp 1"), NOTHING);
    play.act("go to countertop 1");
    assert_eq!(play.lists("use "), ["use desklamp 1"]);
    assert_eq!(play.act("use desklamp 1"), "You turn on the desklamp 1.");
    assert_eq!(play.act("use desklamp 1"), "You turn on the desklamp 1.");
}

#[test]
fn commands_must_fit_to_the_byte_but_for_blanks_around_them() {
    let mut play = Play::new(SIMPLE);
    for wrong in [
        "",
        "Look",
        "LOOK",
        "look around",
        "go  to shelf 1",
        "go to shelf",
        "go to shelf 01",
        "help me",
        "take",
    ] {
        assert_eq!(play.act(wrong), NOTHING, "{wrong:?}");
    }
    for wrong in [
        "go to apple 2",
        "examine window 1",
        "put apple 1 in/on fridge 1",
        "take apple 2 from countertop 1",
        "eat",
    ] {
        assert_eq!(play.act(wrong), NOTHING, "{wrong:?}");
    }
    for right in ["  look", "look\n", "\t\u{1c}inventory\u{a0}"] {
        assert!(play.0.step(right).understood, "{right:?}");
    }
    assert_eq!(play.0.steps(), 17);
}

#[test]
fn commands_and_texts_are_the_same_thing() {
    let mut play = Play::new(SIMPLE);
    for action in ["go to countertop 1", "open cabinet 1", "take knife 1 from countertop 1"] {
        let game = Arc::clone(play.0.game());
        for command in play.0.commands() {
            assert_eq!(Command::parse(&game, &command.text(&game)), Some(command));
        }
        play.act(action);
    }
}

#[test]
fn each_goal_is_recognised_and_won_step_by_step() {
    let mut simple = Play::new(SIMPLE);
    assert_eq!(simple.0.game().task_type(), TaskType::PickAndPlace);
    simple.all(&["go to countertop 1", "take apple 2 from countertop 1"]);
    assert_eq!(simple.progress(), 0.5);
    simple.act("move apple 2 to shelf 11");
    assert!(simple.0.won());

    let mut clean = Play::new(CLEAN);
    clean.all(&[
        "go to countertop 1",
        "open cabinet 1",
        "take mug 1 from countertop 1",
        "move mug 1 to cabinet 1",
    ]);
    assert!(!clean.0.won(), "it is not clean");
    clean.all(&["take mug 1 from cabinet 1", "go to sinkbasin 1", "clean mug 1 with sinkbasin 1"]);
    assert!((clean.progress() - 2.0 / 3.0).abs() < 1e-12);
    clean.all(&["go to cabinet 1", "move mug 1 to cabinet 1"]);
    assert!(clean.0.won() && clean.progress() == 1.0);

    let mut heat = Play::new(HEAT);
    heat.all(&["go to countertop 1", "take apple 2 from countertop 1", "go to microwave 1"]);
    heat.all(&["heat apple 2 with microwave 1", "go to countertop 1", "move apple 2 to countertop 1"]);
    assert!(heat.0.won());

    let mut cool = Play::new(COOL);
    cool.all(&["go to fridge 1", "open fridge 1", "take apple 1 from fridge 1", "go to countertop 1"]);
    cool.act("move apple 1 to countertop 1");
    assert!(cool.0.won(), "what is cool from the start counts");

    let mut look = Play::new(LOOK);
    look.all(&["go to countertop 1", "use desklamp 1", "go to shelf 10", "go to shelf 11"]);
    look.act("take mug 1 from countertop 1");
    assert!(look.0.won(), "the lamp shines at this place");
    look.act("go to shelf 10");
    assert!(!look.0.won() && look.progress() < 1.0, "but not at that one");

    let mut two = Play::new(TWO);
    two.all(&["go to countertop 1", "take apple 2 from countertop 1", "move apple 2 to shelf 11"]);
    assert_eq!(two.progress(), 0.5);
    two.all(&["go to fridge 1", "open fridge 1", "take apple 1 from fridge 1"]);
    assert_eq!(two.progress(), 0.75);
    two.all(&["go to shelf 10", "move apple 1 to shelf 10"]);
    assert!(!two.0.won() && two.progress() == 0.5, "two shelves are not one");
    two.all(&["take apple 1 from shelf 10", "go to shelf 11", "move apple 1 to shelf 11"]);
    assert!(two.0.won());
}

#[test]
fn the_goal_is_looked_at_after_commands_that_are_not_understood() {
    let mut play = Play::new(SIMPLE);
    play.all(&["go to countertop 1", "take apple 2 from countertop 1", "move apple 2 to shelf 11"]);
    let outcome = play.0.step("dance");
    assert!(outcome.won && !outcome.understood);
}

#[test]
fn the_game_can_be_asked_about() {
    let play = Play::new(CLEAN);
    let game = play.0.game();
    assert_eq!((game.id(), game.split(), game.sentence()), ("games/kitchen/1", "games", "tidy up."));
    assert_eq!(game.floor_plan(), None);
    assert_eq!(game.walkthrough().unwrap().collect::<Vec<_>>(), ["look"]);
    let (sink, mug) = (game.receptacle("sinkbasin 1").unwrap(), game.object("mug 1").unwrap());
    assert_eq!((game.receptacle_type(sink), game.object_type(mug)), ("sinkbasin", "mug"));
    assert!(game.accepts(sink, mug) && !game.is_openable(sink) && game.is_pickupable(mug));
    assert_eq!((game.goal().object_type(), game.goal().target_type()), ("mug", "cabinet"));
    assert_eq!(game.goal().objects().collect::<Vec<_>>(), [mug]);
    let counter = game.receptacle("countertop 1").unwrap();
    let names: Vec<&str> = play.0.contents(counter).map(|object| game.object_name(object)).collect();
    assert_eq!(names, ["apple 2", "knife 1", "mug 1", "spoon 1"]);
    assert!(game.object("sinkbasin 1").is_none() && game.receptacle("mug 1").is_none());
}
