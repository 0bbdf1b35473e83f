//! Requests about messages, tickets and posts.

use super::request::{Draw, NAMES, Request, Scene, TOPICS, texts};
use crate::python::values::{Dict, Value, dict};

pub(super) fn messages(draw: &mut Draw) -> Scene {
    let [own, one, other, third, new] = draw.words(&NAMES);
    let numbers: [i64; 4] = draw.numbers(1, 60);
    let ids = numbers.map(|number| format!("USR{number:03}"));
    let id = |place: usize| Value::from(ids[place].as_str());
    let users: Dict = [own, one, other, third]
        .into_iter()
        .enumerate()
        .map(|(place, name)| (name.into(), id(place)))
        .collect();
    let written = [draw.sentence(), draw.sentence(), draw.sentence()];
    let sent = [1, 2, 3]
        .map(|place| Value::Dict([(id(place), written[place - 1].as_str().into())].into_iter().collect()));
    let mut config = Dict::new();
    config.insert("user_map", users);
    config.insert("user_count", 60 + draw.number(1, 30));
    config.insert("inbox", Value::List(sent.to_vec()));
    config.insert("message_count", 3i64);
    config.insert("current_user", id(0));
    let (text, more) = (draw.sentence(), draw.sentence());
    // A word that occurs, so the result is not empty.
    let word = written[draw.0.below(3)].split(' ').nth(1).unwrap_or_default();
    let requests = vec![
        Request::new(match draw.number(0, 1) {
            0 => format!("Send the user {} the message '{text}'.", ids[1]),
            _ => format!("Write to {}: '{text}'.", ids[1]),
        })
        .call("send_message", [("receiver_id", id(1)), ("message", text.as_str().into())])
        .vaguely(format!("Send the user {} a message.", ids[1]), format!("Write '{text}'.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Add {new} to the workspace."),
            _ => format!("{new} is new here, add a contact of this name."),
        })
        .call("add_contact", [("user_name", new.into())])
        .vaguely("Somebody is new here, please add a contact.", format!("The name is {new}.")),
        Request::new(format!("Which messages contain the word '{word}'?"))
            .call("search_messages", [("keyword", word.into())]),
        Request::new(match draw.number(0, 1) {
            0 => format!("Delete my latest message to the user {}.", ids[2]),
            _ => format!("Take back what I last wrote to {}.", ids[2]),
        })
        .call("delete_message", [("receiver_id", id(2))])
        .vaguely("Delete the latest message to one of my contacts.", format!("The id is {}.", ids[2])),
        Request::new(match draw.number(0, 1) {
            0 => format!("Send {other} the message '{more}'."),
            _ => format!("Tell {other}: '{more}'."),
        })
        .lookup("get_user_id", [("user", other.into())])
        .call("send_message", [("receiver_id", id(2)), ("message", more.as_str().into())])
        .vaguely(format!("Send {other} a message."), format!("It should say '{more}'.")),
        Request::new(format!("Delete my latest message to {third}."))
            .lookup("get_user_id", [("user", third.into())])
            .call("delete_message", [("receiver_id", id(3))]),
    ];
    Scene { config, requests }
}

pub(super) fn tickets(draw: &mut Draw) -> Scene {
    let [user] = draw.words(&NAMES);
    let topics: [&str; 6] = draw.words(&TOPICS);
    let ids: [i64; 5] = draw.numbers(1000, 9000);
    let queue = ids.iter().zip(topics).map(|(id, topic)| {
        dict([
            ("id", (*id).into()),
            ("title", format!("Trouble with the {topic}").into()),
            ("description", draw.sentence().into()),
            ("status", "Open".into()),
            ("priority", draw.number(1, 3).into()),
            ("created_by", user.into()),
        ])
    });
    let queue: Vec<Value> = queue.collect();
    let mut config = Dict::new();
    config.insert("ticket_queue", queue);
    config.insert("ticket_counter", draw.number(9001, 9990));
    config.insert("current_user", user);
    let priority = draw.number(1, 5);
    let (title, note) = (format!("Repair the {}", topics[5]), draw.sentence());
    let requests = vec![
        Request::new(match draw.number(0, 1) {
            0 => format!("Open a ticket '{title}' with priority {priority}."),
            _ => format!("I need a ticket of priority {priority}, titled '{title}'."),
        })
        .call("create_ticket", [("title", title.as_str().into()), ("priority", priority.into())])
        .vaguely(format!("Open a ticket with priority {priority}."), format!("The title is '{title}'.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Close ticket {}.", ids[0]),
            _ => format!("Ticket {} can be closed.", ids[0]),
        })
        .call("close_ticket", [("ticket_id", ids[0].into())])
        .vaguely("One of my tickets can be closed.", format!("It is number {}.", ids[0])),
        Request::new(format!("Resolve ticket {} with the note '{note}'.", ids[1]))
            .call("resolve_ticket", [("ticket_id", ids[1].into()), ("resolution", note.as_str().into())])
            .vaguely(format!("Resolve ticket {} with a note.", ids[1]), format!("Note '{note}'.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Set the priority of ticket {} to {}.", ids[2], 6 - priority),
            _ => format!("Ticket {} should have priority {}.", ids[2], 6 - priority),
        })
        .call(
            "edit_ticket",
            [("ticket_id", ids[2].into()), ("updates", dict([("priority", (6 - priority).into())]))],
        )
        .vaguely(format!("Change the priority of ticket {}.", ids[2]), format!("To {}.", 6 - priority)),
        Request::new(format!("Show me ticket {}.", ids[3]))
            .call("get_ticket", [("ticket_id", ids[3].into())]),
        Request::new(format!("Close my ticket about the {}.", topics[4]))
            .lookup("get_user_tickets", [])
            .call("close_ticket", [("ticket_id", ids[4].into())]),
    ];
    Scene { config, requests }
}

pub(super) fn posting(draw: &mut Draw) -> Scene {
    let users: [String; 7] = draw.words(&NAMES).map(str::to_lowercase);
    let [own, one, other, third, followed, liked, new] = &users;
    let ids: [i64; 3] = draw.numbers(10, 900);
    let tweets = ids.iter().zip([one, other, third]).map(|(id, author)| {
        let tweet = dict([
            ("id", (*id).into()),
            ("username", author.as_str().into()),
            ("content", draw.sentence().into()),
            ("tags", texts(["#news"])),
            ("mentions", texts::<Value>([])),
        ]);
        (id.to_string().into(), tweet)
    });
    let tweets: Dict = tweets.collect();
    let mut config = Dict::new();
    config.insert("username", own.as_str());
    config.insert("password", "secret");
    config.insert("authenticated", true);
    config.insert("tweets", tweets);
    config.insert("following_list", texts([followed.as_str(), liked.as_str()]));
    config.insert("tweet_counter", draw.number(901, 990));
    let (text, said, more) = (draw.sentence(), draw.sentence(), draw.sentence());
    let tag = format!("#{}", draw.word(&TOPICS));
    let tags = || texts([tag.as_str()]);
    let requests = vec![
        Request::new(match draw.number(0, 1) {
            0 => format!("Post '{text}' with the tag {tag}."),
            _ => format!("Publish '{text}' and tag it {tag}."),
        })
        .call("post_tweet", [("content", text.as_str().into()), ("tags", tags())])
        .vaguely(format!("Publish a post with the tag {tag}."), format!("Write '{text}'.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Follow {new}."),
            _ => format!("I would like to follow {new}."),
        })
        .call("follow_user", [("username_to_follow", new.as_str().into())])
        .vaguely("There is somebody whom I would like to follow.", format!("Follow {new}.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Stop following {followed}."),
            _ => format!("I do not want to follow {followed} any more."),
        })
        .call("unfollow_user", [("username_to_unfollow", followed.as_str().into())])
        .vaguely("Stop following one of those whom I follow.", format!("I mean {followed}.")),
        Request::new(format!("Share the post {}.", ids[0]))
            .call("retweet", [("tweet_id", ids[0].into())])
            .vaguely("Share one of the posts.", format!("The one with the id {}.", ids[0])),
        Request::new(format!("Comment '{said}' on the post {}.", ids[1]))
            .call("comment", [("tweet_id", ids[1].into()), ("comment_content", said.as_str().into())])
            .vaguely(format!("Write a comment on the post {}.", ids[1]), format!("Write '{said}'.")),
        Request::new(format!("Comment '{more}' on the post of {third}."))
            .lookup("get_user_tweets", [("username", third.as_str().into())])
            .call("comment", [("tweet_id", ids[2].into()), ("comment_content", more.as_str().into())]),
    ];
    Scene { config, requests }
}
