//! `TwitterAPI`: posts, comments and followed users.

use super::{Fields, error};
use crate::python::method::{Arguments, Default, Method, method, optional, required};
use crate::python::values::{
    Dict, Raise, Value, add_in_place, dict, hashable, int_of, iterate, lower, str_method,
};

pub(super) const METHODS: &[Method] = &[
    method("authenticate_twitter", &[required("username"), required("password")]),
    method("posting_get_login_status", &[]),
    method(
        "post_tweet",
        &[required("content"), optional("tags", Default::List), optional("mentions", Default::List)],
    ),
    method("retweet", &[required("tweet_id")]),
    method("comment", &[required("tweet_id"), required("comment_content")]),
    method("mention", &[required("tweet_id"), required("mentioned_usernames")]),
    method("follow_user", &[required("username_to_follow")]),
    method("list_all_following", &[]),
    method("unfollow_user", &[required("username_to_unfollow")]),
    method("get_tweet", &[required("tweet_id")]),
    method("get_user_tweets", &[required("username")]),
    method("search_tweets", &[required("keyword")]),
    method("get_tweet_comments", &[required("tweet_id")]),
    method("get_user_stats", &[required("username")]),
];

#[derive(Clone, Debug)]
pub(super) struct Posting {
    username: Value,
    password: Value,
    authenticated: Value,
    tweets: Dict,
    comments: Dict,
    retweets: Dict,
    following: Vec<Value>,
    counter: Value,
    /// Mentions of posts created without `mentions`. In the original, these posts share one list
    /// object, so a mention added to one post appears in all of them.
    pub(super) default_mentions: Vec<Value>,
    sharing: Vec<Value>,
}

fn field<'a>(tweet: &'a Value, name: &str) -> Result<&'a Value, Raise> {
    tweet.as_dict().and_then(|tweet| tweet.get_str(name)).ok_or_else(|| Raise::key_error(&name.into()))
}

fn unknown(id: &Value) -> Value {
    error(format!("Tweet with ID {id} not found."))
}

impl Posting {
    pub(super) fn new(scenario: &Dict) -> Self {
        let fields = Fields(scenario);
        let tweets = fields.dict("tweets").into_iter();
        Self {
            username: fields.value("username", "john"),
            password: fields.value("password", "john123"),
            authenticated: fields.value("authenticated", false),
            tweets: tweets.map(|(key, tweet)| (int_of(&key).unwrap_or(key), tweet)).collect(),
            comments: fields.dict("comments"),
            retweets: fields.dict("retweets"),
            following: fields.list_or("following_list", || vec!["alice".into(), "bob".into()]),
            counter: fields.value("tweet_counter", 0i64),
            default_mentions: Vec::new(),
            sharing: Vec::new(),
        }
    }

    pub(super) fn state(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("username", self.username.clone()),
            ("password", self.password.clone()),
            ("authenticated", self.authenticated.clone()),
            ("tweets", self.tweets.clone().into()),
            ("comments", self.comments.clone().into()),
            ("retweets", self.retweets.clone().into()),
            ("following_list", self.following.clone().into()),
            ("tweet_counter", self.counter.clone()),
        ]
    }

    fn refusal(&self, what: &str) -> Option<Value> {
        let refused = !self.authenticated.is_true();
        refused.then(|| error(format!("User not authenticated. Please authenticate before {what}.")))
    }

    pub(super) fn call(&mut self, method: &str, arguments: Arguments) -> Result<Value, Raise> {
        let refusal = match method {
            "post_tweet" => self.refusal("posting"),
            "retweet" => self.refusal("retweeting"),
            "comment" => self.refusal("commenting"),
            "follow_user" => self.refusal("following"),
            "list_all_following" => self.refusal("listing following"),
            "unfollow_user" => self.refusal("unfollowing"),
            _ => None,
        };
        if let Some(refusal) = refusal {
            return Ok(refusal);
        }
        match method {
            "authenticate_twitter" => {
                let [username, password] = arguments.take();
                let known = username == self.username && password == self.password;
                if known {
                    self.authenticated = true.into();
                }
                Ok(dict([("authentication_status", known.into())]))
            }
            "posting_get_login_status" => Ok(dict([("login_status", self.authenticated.is_true().into())])),
            "post_tweet" => self.post(arguments),
            "retweet" => self.retweet(arguments.take()),
            "comment" => self.comment(arguments.take()),
            "mention" => self.mention(arguments.take()),
            "follow_user" => {
                let [name] = arguments.take();
                let new = !self.following.contains(&name);
                if new {
                    self.following.push(name);
                }
                Ok(dict([("follow_status", new.into())]))
            }
            "list_all_following" => Ok(dict([("following_list", self.following.clone().into())])),
            "unfollow_user" => {
                let [name] = arguments.take();
                let place = self.following.iter().position(|known| *known == name);
                if let Some(place) = place {
                    self.following.remove(place);
                }
                Ok(dict([("unfollow_status", place.is_some().into())]))
            }
            "get_tweet" => {
                let [id] = arguments.take();
                hashable(&id)?;
                Ok(self.tweets.get(&id).cloned().unwrap_or_else(|| unknown(&id)))
            }
            "get_user_tweets" => {
                let [name] = arguments.take();
                Ok(Value::List(self.tweets_of(&name)?.into_iter().cloned().collect()))
            }
            "search_tweets" => self.search(arguments.take()),
            "get_tweet_comments" => {
                let [id] = arguments.take();
                hashable(&id)?;
                if !self.tweets.contains(&id) {
                    return Ok(unknown(&id));
                }
                Ok(self.comments.get(&id).cloned().unwrap_or_else(|| Value::List(Vec::new())))
            }
            _ => {
                let [name] = arguments.take();
                let tweets = self.tweets_of(&name)?.len();
                let following = if name == self.username { self.following.len() } else { 0 };
                hashable(&name)?;
                let retweets = self.retweets.get(&name).map_or(Ok(0), crate::python::values::length)?;
                Ok(dict([
                    ("tweet_count", tweets.into()),
                    ("following_count", following.into()),
                    ("retweet_count", retweets.into()),
                ]))
            }
        }
    }

    fn tweets_of(&self, name: &Value) -> Result<Vec<&Value>, Raise> {
        let mut found = Vec::new();
        for tweet in self.tweets.values() {
            if field(tweet, "username")? == name {
                found.push(tweet);
            }
        }
        Ok(found)
    }

    fn post(&mut self, arguments: Arguments) -> Result<Value, Raise> {
        let shares = !arguments.is_given(2);
        let [content, tags, mut mentions] = arguments.take();
        if shares {
            self.sharing.push(self.counter.clone());
            mentions = self.default_mentions.clone().into();
        } else {
            self.sharing.retain(|id| *id != self.counter);
        }
        let tweet = dict([
            ("id", self.counter.clone()),
            ("username", self.username.clone()),
            ("content", content),
            ("tags", tags),
            ("mentions", mentions),
        ]);
        self.tweets.insert(self.counter.clone(), tweet.clone());
        self.counter = add_in_place(&self.counter, &Value::Int(1))?;
        Ok(tweet)
    }

    fn retweet(&mut self, [id]: [Value; 1]) -> Result<Value, Raise> {
        hashable(&id)?;
        if !self.tweets.contains(&id) {
            return Ok(unknown(&id));
        }
        hashable(&self.username)?;
        if !self.retweets.contains(&self.username) {
            self.retweets.insert(self.username.clone(), Vec::new());
        }
        let Some(Value::List(retweets)) = self.retweets.get_mut(&self.username) else {
            return Err(Raise::no_attribute(&Value::None, "append"));
        };
        let text = if retweets.contains(&id) {
            "Already retweeted"
        } else {
            retweets.push(id);
            "Successfully retweeted"
        };
        Ok(dict([("retweet_status", text.into())]))
    }

    fn comment(&mut self, [id, content]: [Value; 2]) -> Result<Value, Raise> {
        hashable(&id)?;
        if !self.tweets.contains(&id) {
            return Ok(unknown(&id));
        }
        if !self.comments.contains(&id) {
            self.comments.insert(id.clone(), Vec::new());
        }
        if let Some(Value::List(comments)) = self.comments.get_mut(&id) {
            comments.push(dict([("username", self.username.clone()), ("content", content)]));
        }
        Ok(dict([("comment_status", "Comment added successfully".into())]))
    }

    fn mention(&mut self, [id, names]: [Value; 2]) -> Result<Value, Raise> {
        hashable(&id)?;
        let Some(tweet) = self.tweets.get(&id) else { return Ok(unknown(&id)) };
        let mentions = field(tweet, "mentions")?;
        if !matches!(mentions, Value::List(_)) {
            return Err(Raise::no_attribute(mentions, "extend"));
        }
        let names = iterate(&names)?;
        if self.sharing.contains(&id) {
            self.default_mentions.extend(names.iter().cloned());
            for id in &self.sharing {
                extend(&mut self.tweets, id, &names);
            }
        } else {
            extend(&mut self.tweets, &id, &names);
        }
        Ok(dict([("mention_status", "Users mentioned successfully".into())]))
    }

    fn search(&self, [keyword]: [Value; 1]) -> Result<Value, Raise> {
        let mut found = Vec::new();
        for tweet in self.tweets.values() {
            let keyword = lower(str_method(&keyword, "lower")?);
            let content = field(tweet, "content")?;
            let mut matches = lower(str_method(content, "lower")?).contains(&keyword);
            if !matches {
                for tag in iterate(field(tweet, "tags")?)? {
                    matches |= lower(str_method(&tag, "lower")?) == keyword;
                }
            }
            if matches {
                found.push(tweet.clone());
            }
        }
        Ok(found.into())
    }
}

fn extend(tweets: &mut Dict, id: &Value, names: &[Value]) {
    if let Some(Value::Dict(tweet)) = tweets.get_mut(id)
        && let Some(Value::List(mentions)) = tweet.get_mut(&"mentions".into())
    {
        mentions.extend_from_slice(names);
    }
}
