//! `sheaf token`: what programs sign in with. Everybody makes and sees their own alone; the secret is told once.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use http::Method;
use serde_json::{Value, json};

use crate::{
    asking::{
        Format, Refusal, Session,
        facts::text,
        format::{json_text, yaml},
        names,
        table::{self, Cell, Column, Tone, column, wide},
        waiting::duration,
    },
    completing,
};

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token, and print it; it is told only now
    Create(CreateArgs),
    /// Print your tokens and sessions
    #[command(visible_alias = "ls")]
    List,
    /// End tokens or sessions
    #[command(visible_alias = "rm")]
    Delete(NamesArgs),
}

#[derive(Debug, ClapArgs)]
pub struct CreateArgs {
    /// What it is for
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub description: String,
    /// How long it is good, such as 12h or 90d [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub ttl: Option<Duration>,
}

#[derive(Debug, ClapArgs)]
pub struct NamesArgs {
    /// The tokens
    #[arg(required = true, value_name = "NAME", value_parser = names::segment, add = completing::tokens())]
    pub names: Vec<String>,
}

const COLUMNS: &[Column] = &[
    column("NAME", |token, _| text(token, "/id").into()),
    column("KIND", |token, _| match (token["current"] == true, token["isDerived"] == true) {
        (true, _) => "this session".into(),
        (false, true) => "token".into(),
        (false, false) => "session".into(),
    }),
    column("DESCRIPTION", |token, _| text(token, "/description").into()),
    column("ENDS", |token, moment| {
        let end = text(token, "/expiresAt");
        match sheaf_resources::age::parse_rfc3339(end) {
            _ if token["expired"] == true => Cell::toned("has ended", Tone::Quiet),
            None => "never".into(),
            Some(end) => format!("in {}", sheaf_resources::age::short(end - moment.now)).into(),
        }
    }),
    wide("MADE", |token, _| text(token, "/created").into()),
];

pub async fn run(session: &Session, command: TokenCommand) -> Result<(), Refusal> {
    match command {
        TokenCommand::Create(args) => create(session, &args).await,
        TokenCommand::List => list(session).await,
        TokenCommand::Delete(args) => {
            for name in &args.names {
                let doing = format!("end the token {name}");
                match session.ask(Method::DELETE, &format!("/v3/tokens/{name}"), None, &doing).await {
                    Err(why) if why.is_not_found() => {
                        let advice = "`sheaf token list` prints yours".to_owned();
                        return Err(Refusal::NotFound {
                            about: format!("token {name}"),
                            meant: None,
                            advice,
                        });
                    }
                    answer => answer?,
                };
                session.out.print(&format!("token {name} is ended\n"))?;
            }
            Ok(())
        }
    }
}

/// Ends the session that this very command uses.
pub async fn log_out(session: &Session) -> Result<(), Refusal> {
    let doing = format!("sign out at {}", session.server());
    session.ask(Method::POST, "/v3/tokens?action=logout", Some(&json!({})), &doing).await?;
    session.out.print(&format!("signed out at {}; `sheaf login` signs in again\n", session.server()))
}

async fn create(session: &Session, args: &CreateArgs) -> Result<(), Refusal> {
    let ttl = args.ttl.map_or(0, |ttl| ttl.as_millis());
    let body = json!({"type": "token", "description": args.description, "ttl": u64::try_from(ttl).unwrap_or(u64::MAX)});
    let made = session.ask(Method::POST, "/v3/tokens", Some(&body), "make a token").await?;
    let text = match session.format {
        Format::Json => json_text(&made),
        Format::Yaml => yaml(&made)?,
        Format::Name => format!("{}\n", text(&made, "/id")),
        // Alone on its line, for `$(sheaf token create)`.
        Format::Table | Format::Wide => format!("{}\n", text(&made, "/token")),
    };
    session.out.print(&text)
}

async fn list(session: &Session) -> Result<(), Refusal> {
    let mut page = session.ask(Method::GET, "/v3/tokens", None, "list your tokens").await?;
    let tokens = match page["data"].take() {
        Value::Array(tokens) => tokens,
        _ => Vec::new(),
    };
    let text = match session.format {
        Format::Json => json_text(&Value::Array(tokens)),
        Format::Yaml => yaml(&Value::Array(tokens))?,
        Format::Name => tokens.iter().map(|token| format!("{}\n", text(token, "/id"))).collect(),
        Format::Table | Format::Wide if tokens.is_empty() => {
            "you have no token; `sheaf token create` makes one\n".to_owned()
        }
        Format::Table | Format::Wide => {
            table::of(COLUMNS, &tokens, &session.moment(), session.format, session.out)
        }
    };
    session.out.print(&text)
}
