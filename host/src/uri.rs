//! The parts of URIs.

use crossdock_plugin_api::is_scheme;

/// Returns the scheme of a URI in lower case, for example "s3" for "s3://bucket/name"; `None` for a
/// text that is not a URI.
pub fn scheme_of(text: &str) -> Option<String> {
    let scheme = text.split_once("://")?.0.to_ascii_lowercase();
    is_scheme(&scheme).then_some(scheme)
}

/// Returns the URI for a message, without user name, password and query, which may contain a
/// secret.
pub fn without_secrets(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else { return uri.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    format!("{scheme}://{place}{path}")
}

#[cfg(test)]
mod tests {
    use super::{scheme_of, without_secrets};

    #[test]
    fn schemes_are_found_in_any_case() {
        assert_eq!(scheme_of("S3://bucket/name").as_deref(), Some("s3"));
        assert_eq!(scheme_of("svn+ssh://host").as_deref(), Some("svn+ssh"));
        for text in ["", "a", "/tmp/a://b", "./s3://a", "://a", "3s://a", "s3:/a", "a b://c"] {
            assert_eq!(scheme_of(text), None, "{text}");
        }
    }

    #[test]
    fn messages_contain_no_password_and_no_query() {
        assert_eq!(without_secrets("https://me:pw@host:1/a@b?sig=x#y"), "https://host:1/a@b");
        assert_eq!(without_secrets("s3://bucket"), "s3://bucket");
        assert_eq!(without_secrets("https://a@b@host?x"), "https://host");
    }
}
