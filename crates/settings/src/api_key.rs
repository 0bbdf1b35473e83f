//! API keys. Settings contain names of environment variables, never the keys themselves.

use std::env::VarError;

use thiserror::Error;

/// Why a variable has no valid API key, phrased to follow the setting's name. The message omits the
/// value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApiKeyError {
    /// The variable does not exist.
    #[error("the environment variable {0} is not set; it is to hold the API key")]
    Missing(String),
    /// The variable is empty, for example if a script exports a missing key.
    #[error("the environment variable {0} is empty; it is to hold the API key")]
    Empty(String),
    /// The variable contains spaces, line breaks or other characters that are not visible ASCII.
    #[error("the environment variable {0} has characters that no API key has")]
    Characters(String),
}

/// Returns the API key from the variable that a setting names; `None` if the setting is empty.
///
/// # Errors
/// Fails if the variable has no valid key. The key is checked here because a service's error would
/// not name the variable.
pub fn api_key(variable: &str) -> Result<Option<String>, ApiKeyError> {
    if variable.is_empty() {
        return Ok(None);
    }
    key_in(variable, std::env::var(variable)).map(Some)
}

fn key_in(variable: &str, value: Result<String, VarError>) -> Result<String, ApiKeyError> {
    let variable = variable.to_owned();
    match value {
        Err(VarError::NotPresent) => Err(ApiKeyError::Missing(variable)),
        Ok(key) if key.is_empty() => Err(ApiKeyError::Empty(variable)),
        Ok(key) if key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(key),
        Ok(_) | Err(VarError::NotUnicode(_)) => Err(ApiKeyError::Characters(variable)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_from_the_variable_that_is_named() {
        assert_eq!(api_key(""), Ok(None));
        assert_eq!(api_key("CARGO_PKG_NAME"), Ok(Some("turnwise-settings".into())));
        assert_eq!(key_in("KEY", Ok("sk-123_/+=".into())), Ok("sk-123_/+=".into()));
    }

    #[test]
    fn a_variable_without_a_key_is_named_and_its_text_is_not() {
        let missing = api_key("TURNWISE_NO_SUCH_VARIABLE").unwrap_err();
        assert_eq!(missing, ApiKeyError::Missing("TURNWISE_NO_SUCH_VARIABLE".into()));
        assert!(missing.to_string().contains("TURNWISE_NO_SUCH_VARIABLE is not set"), "{missing}");
        let empty = key_in("KEY", Ok(String::new())).unwrap_err();
        assert!(empty.to_string().contains("variable KEY is empty"), "{empty}");
        for text in ["secret key", "secret\n", "sécret"] {
            let error = key_in("KEY", Ok(text.into())).unwrap_err();
            assert_eq!(error, ApiKeyError::Characters("KEY".into()));
            assert!(error.to_string().contains("variable KEY has characters"), "{error}");
        }
        let unreadable = key_in("KEY", Err(VarError::NotUnicode("secret".into())));
        assert_eq!(unreadable, Err(ApiKeyError::Characters("KEY".into())));
    }
}
