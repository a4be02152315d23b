//! `toolgate key`: API keys made beside the server, with the database in hand. What is not here: their form (`auth`).

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use secrecy::ExposeSecret;
use toolgate_core::id::{ActorId, ProfileName, TenantId};
use toolgate_server::auth::{KeyRequest, mint};
use toolgate_server::caller::Scope;
use toolgate_server::clock::{Clock, SystemClock};
use toolgate_server::local::master_key;
use toolgate_server::node::{open_database, pepper};

use crate::failure::CommandError;
use crate::output;
use crate::serve::StorageArguments;

/// Make API keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Make a key and print it once.
    New(NewKey),
}

/// Make a key and print it once.
#[derive(Debug, Args)]
pub(crate) struct NewKey {
    #[command(flatten)]
    storage: StorageArguments,
    /// The tenant it acts for; a new name is a new tenant.
    #[arg(long)]
    tenant: TenantId,
    /// The principal it stands for, as the log will name it.
    #[arg(long)]
    actor: ActorId,
    /// What it may do; repeat for more. `all` is every scope.
    #[arg(long = "scope", required = true, value_parser = parse_scope)]
    scopes: Vec<ScopeArgument>,
    /// Profiles it may use; repeat for more. None means all.
    #[arg(long = "profile")]
    profiles: Vec<ProfileName>,
    /// A name for people.
    #[arg(long, default_value = "")]
    label: String,
}

#[derive(Debug, Clone)]
enum ScopeArgument {
    All,
    One(Scope),
}

fn parse_scope(word: &str) -> Result<ScopeArgument, String> {
    if word == "all" {
        return Ok(ScopeArgument::All);
    }
    let known = || Scope::ALL.map(Scope::word).join(", ");
    Scope::parse(word).map(ScopeArgument::One).ok_or_else(|| format!("no such scope; there are {} and all", known()))
}

impl Key {
    pub(crate) async fn run(self) -> Result<ExitCode, CommandError> {
        let Self::New(new) = self;
        let settings = new.storage.settings(Vec::new())?;
        let master = master_key(&settings.storage)?;
        let store = open_database(&settings.storage).await?;
        let pepper = pepper(&master).map_err(|error| CommandError::of(&error))?;
        let scopes = new
            .scopes
            .into_iter()
            .flat_map(|scope| match scope {
                ScopeArgument::All => Scope::ALL.to_vec(),
                ScopeArgument::One(scope) => vec![scope],
            })
            .collect();
        let profiles: BTreeSet<ProfileName> = new.profiles.into_iter().collect();
        let request = KeyRequest {
            tenant: new.tenant,
            actor: new.actor,
            scopes,
            ceiling: (!profiles.is_empty()).then_some(profiles),
            label: new.label,
            expires_at: None,
        };
        let (row, printed) = mint(&pepper, request, SystemClock.now()).map_err(|error| CommandError::of(&error))?;
        if !store.api_key_put(&row).await? {
            return Err(CommandError::new("the key id is taken; try again"));
        }
        output::line(printed.expose_secret());
        Ok(ExitCode::SUCCESS)
    }
}
