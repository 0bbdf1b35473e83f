//! A scripted user for training.

use turnwise_core::{EnvError, Purpose, Seed};

use super::person::first_person;
use super::{STOP, TRANSFER, Talk, User};
use crate::tau2::task::Instructions;

const SAYS_WHO_AT_ONCE: f64 = 0.3;

const IDENTITY: [&str; 12] = [
    "name",
    "zip",
    "email",
    "e-mail",
    "identity",
    "identify",
    "verify",
    "who are you",
    "who am i",
    "user id",
    "account",
    "phone",
];

const CONFIRM: [&str; 6] = ["yes", "confirm", "proceed", "go ahead", "shall i", "should i"];

/// Phrases that make a message without a question mark count as a question.
const ASKS: [&str; 6] =
    ["please confirm", "please provide", "please tell", "please give", "let me know", "please share"];

const OPENINGS: [&str; 4] = ["Hello.", "Hi.", "Hi there.", "Good morning."];

/// The scripted user, determined by the task, the seed and the agent's messages.
///
/// | the agent | the user |
/// |---|---|
/// | asks who the user is | states the known facts; if asked again, also the unknown ones |
/// | asks anything else for the first time | states the user's wishes, after a yes if asked to confirm |
/// | asks again | confirms if asked to, or has nothing to add |
/// | makes a statement | ends the conversation |
/// | has transferred the user to a human | ends the conversation |
#[derive(Clone, Copy, Debug, Default)]
pub struct Scripted;

struct Script {
    request: String,
    known: String,
    unknown: String,
    wishes: String,
}

impl Script {
    fn new(instructions: &Instructions) -> Self {
        match instructions {
            Instructions::Fields(fields) => {
                let say =
                    |text: Option<&String>| text.map(|text| first_person(text.trim())).unwrap_or_default();
                Self {
                    request: say(Some(&fields.reason_for_call)),
                    known: say(fields.known_info.as_ref()),
                    unknown: say(fields.unknown_info.as_ref()),
                    wishes: say(Some(&fields.task_instructions)),
                }
            }
            Instructions::Text(text) => Self {
                request: first_person(text.trim()),
                known: String::new(),
                unknown: String::new(),
                wishes: String::new(),
            },
        }
    }
}

fn has(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

fn joined(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ")
}

impl User for Scripted {
    fn reply(&self, talk: Talk<'_>) -> Result<String, EnvError> {
        let mut rng = Seed::derive(talk.draw, Purpose::Environment, &[]).rng();
        let script = Script::new(&talk.task.user_scenario.instructions);
        let opening = rng.choose(&OPENINGS).copied().unwrap_or_default();
        let mut said_who = rng.chance(SAYS_WHO_AT_ONCE);
        let mut reply =
            joined(&[opening, &script.request, if said_who { script.known.as_str() } else { "" }]);
        let (mut said_unknown, mut said_wishes) = (false, false);
        // Skips the greeting, which the request answers.
        for words in talk.agent.iter().skip(1) {
            let words = words.to_lowercase();
            let asks_who = has(&words, &IDENTITY);
            let confirms = has(&words, &CONFIRM);
            reply = if !words.contains('?') && !has(&words, &ASKS) {
                format!("Thank you. {STOP}")
            } else if asks_who && !said_who {
                said_who = true;
                if script.known.is_empty() {
                    "I cannot say more about me.".to_owned()
                } else {
                    script.known.clone()
                }
            } else if asks_who && !confirms && !said_unknown {
                said_unknown = true;
                joined(&[&script.known, &script.unknown])
            } else if !said_wishes && !script.wishes.is_empty() {
                said_wishes = true;
                joined(&[if confirms { "Yes." } else { "" }, &script.wishes])
            } else if confirms {
                "Yes, please.".to_owned()
            } else {
                "I have said all that I know.".to_owned()
            };
        }
        if talk.is_transferred && talk.agent.len() > 1 {
            return Ok(TRANSFER.to_owned());
        }
        Ok(reply)
    }

    fn is_instant(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tau2::task::Tau2Task;
    use crate::tau2::user::GREETING;

    fn say(agent: &[&str], is_transferred: bool, draw: u64) -> String {
        let text = r#"{"id": "1", "user_scenario": {"instructions": {"domain": "retail",
            "reason_for_call": "You want to return your lamp.", "known_info": "You are Ann Lee.",
            "unknown_info": "You do not remember your email.", "task_instructions": "You are brief."}}}"#;
        let task: Tau2Task = serde_json::from_str(text).unwrap();
        let words = std::iter::once(GREETING).chain(agent.iter().copied());
        let agent: Vec<String> = words.map(str::to_owned).collect();
        Scripted.reply(Talk { task: &task, agent: &agent, user: &[], is_transferred, draw }).unwrap()
    }

    #[test]
    fn the_user_asks_answers_confirms_and_ends() {
        let late = (0..100).find(|draw| !say(&[], false, *draw).contains("Ann")).unwrap();
        let early = (0..100).find(|draw| say(&[], false, *draw).contains("I am Ann Lee.")).unwrap();
        assert!(say(&[], false, late).ends_with("I want to return my lamp."));
        let who = "What is your name and email?";
        assert_eq!(say(&[who], false, late), "I am Ann Lee.");
        assert_eq!(say(&[who], false, early), "I am Ann Lee. I do not remember my email.");
        assert_eq!(say(&[who, who], false, late), "I am Ann Lee. I do not remember my email.");
        let confirm = "I will return it. Do you confirm (yes/no)?";
        assert_eq!(say(&[who, confirm], false, late), "Yes. I am brief.");
        assert_eq!(say(&[who, confirm, confirm], false, late), "Yes, please.");
        assert!(super::super::ends(&say(&[who, confirm, "It is done."], false, late)));
        assert_eq!(say(&["You are being transferred."], true, late), TRANSFER);
        assert_eq!(say(&[who], false, late), say(&[who], false, late));
    }
}
