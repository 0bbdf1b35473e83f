//! A visit to the shop.

use std::collections::BTreeSet;
use std::sync::Arc;

use turnwise_core::EnvError;

use super::action::Action;
use super::page::{PageView, PartKind, Target, dumps, options_json};
use super::product::Product;
use super::shop::Shop;
use crate::python::float;

/// Number of search results per page.
pub(crate) const PAGE_SIZE: usize = 10;

/// Highest page number that a restored visit may have, so that product numbers fit into `u32`.
const LAST_PAGE: usize = u32::MAX as usize / PAGE_SIZE;

/// Pages reached from a product page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubPage {
    /// Description.
    Description,
    /// Bullet points.
    Features,
    /// Reviews; always empty.
    Reviews,
    /// Attributes and categories, if the shop shows them.
    Attributes,
}

impl SubPage {
    fn named(name: &str) -> Option<Self> {
        match name {
            "description" => Some(Self::Description),
            "features" => Some(Self::Features),
            "reviews" => Some(Self::Reviews),
            "attributes" => Some(Self::Attributes),
            _ => None,
        }
    }
}

/// The open page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Page {
    /// Start page with a search bar.
    #[default]
    Index,
    /// Search results.
    Results,
    /// Product page.
    Item,
    /// Page reached from a product page.
    Sub(SubPage),
    /// Page after a purchase.
    Done,
}

/// Saved state of an episode.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visit {
    /// Open page.
    pub page: Page,
    /// Last query, in lower case.
    pub query: Option<String>,
    /// Page number of the search results, from 1.
    pub number: usize,
    /// Catalogue index of the current product.
    pub product: Option<u32>,
    /// Selected options and values, in order of selection.
    pub options: Vec<(String, String)>,
    /// Products opened since the last `back to search`.
    pub visited: BTreeSet<u32>,
}

/// A visit with the data shown on its pages.
#[derive(Debug)]
pub struct Session {
    shop: Arc<Shop>,
    instruction: String,
    visit: Visit,
    hits: Vec<u32>,
    shown: Vec<(u32, Arc<Product>)>,
    product: Option<Arc<Product>>,
    score: f64,
}

/// Effect of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No effect.
    Nothing,
    /// The page changed.
    Moved,
    /// The agent bought the product.
    Bought,
}

impl Session {
    /// Starts a visit on the start page.
    pub fn new(shop: Arc<Shop>, instruction: String) -> Self {
        Self {
            shop,
            instruction,
            visit: Visit::default(),
            hits: Vec::new(),
            shown: Vec::new(),
            product: None,
            score: 0.0,
        }
    }

    /// Restores a saved visit.
    ///
    /// # Errors
    /// Returns [`EnvError::State`] for an impossible visit, or another error if a search fails or a
    /// product cannot be read.
    pub fn resume(shop: Arc<Shop>, instruction: String, visit: Visit) -> Result<Self, EnvError> {
        let refuse = |reason: &str| EnvError::State(format!("{reason}; the state was altered"));
        let mut session = Self::new(shop, instruction);
        if let Some(query) = &visit.query {
            session.hits = session.shop.search(query)?;
        } else if visit.page != Page::Index {
            return Err(refuse("a page without a search before it"));
        }
        let inside = |product: u32| (product as usize) < session.shop.catalogue().len();
        if !visit.visited.iter().copied().chain(visit.product).all(inside) {
            return Err(refuse("a product that the catalogue does not have"));
        }
        let pages = if visit.page == Page::Index { 0..=0 } else { 1..=LAST_PAGE };
        if !pages.contains(&visit.number) {
            return Err(refuse("a page of results with a number that none has"));
        }
        match (visit.page, visit.product) {
            (Page::Item | Page::Sub(_), Some(product)) => {
                session.product = Some(session.shop.catalogue().product(product)?);
            }
            (Page::Results | Page::Index, None) => {}
            _ => return Err(refuse("this page cannot be saved")),
        }
        session.visit = visit;
        session.show_results()?;
        Ok(session)
    }

    /// Returns the saved state.
    pub fn visit(&self) -> &Visit {
        &self.visit
    }

    /// Returns the instruction.
    pub fn instruction(&self) -> &str {
        &self.instruction
    }

    /// Returns the open product and its catalogue index.
    pub fn product(&self) -> Option<(u32, &Arc<Product>)> {
        Some((self.visit.product?, self.product.as_ref()?))
    }

    /// Returns the products listed on the open page, or none if it shows no search results.
    pub fn listed(&self) -> &[(u32, Arc<Product>)] {
        if self.visit.page == Page::Results { &self.shown } else { &[] }
    }

    /// Ends the visit and shows the score.
    pub fn close(&mut self, score: f64) {
        self.score = score;
        self.visit.page = Page::Done;
    }

    /// Executes an action. If the result is [`Effect::Bought`], the caller must score the purchase
    /// and call [`Session::close`] with the score.
    ///
    /// # Errors
    /// Fails if a search fails, a product cannot be read or [`Session::view`] fails.
    pub fn step(&mut self, action: &Action) -> Result<Effect, EnvError> {
        match action {
            Action::Search(query) => {
                let hits = self.shop.search(query)?;
                self.found(query, hits)?;
                Ok(Effect::Moved)
            }
            Action::Click(name) if name != "search" => match self.view()?.target(name) {
                Some(target) => self.click(name, target),
                None => Ok(Effect::Nothing),
            },
            Action::Click(_) | Action::Other => Ok(Effect::Nothing),
        }
    }

    pub(super) fn found(&mut self, query: &str, hits: Vec<u32>) -> Result<(), EnvError> {
        self.hits = hits;
        self.visit.query = Some(query.to_owned());
        self.results(1)
    }

    /// Clicks an item. As in the original, clicking an option value named `buy now` buys the
    /// product.
    fn click(&mut self, name: &str, target: Target) -> Result<Effect, EnvError> {
        let visit = &mut self.visit;
        match name {
            "buy now" => return Ok(Effect::Bought),
            "back to search" => {
                *visit = Visit::default();
                self.hits.clear();
                self.shown.clear();
                self.product = None;
                return Ok(Effect::Moved);
            }
            "next >" if visit.page == Page::Results => self.results(self.visit.number + 1)?,
            "< prev" if visit.page == Page::Results => self.results(self.visit.number - 1)?,
            "< prev" if visit.page == Page::Item => self.results(self.visit.number)?,
            _ => match (SubPage::named(name), target) {
                (Some(page), _) if matches!(visit.page, Page::Item) => visit.page = Page::Sub(page),
                (_, Target::Product(entry)) => {
                    if let Some((index, product)) = self.shown.get(entry) {
                        visit.page = Page::Item;
                        visit.product = Some(*index);
                        visit.visited.insert(*index);
                        self.product = Some(Arc::clone(product));
                    }
                }
                (_, Target::Option(group)) => {
                    let product = self.product.as_ref();
                    if let Some(option) = product.and_then(|product| product.options.get(group)) {
                        let key = option.name.to_lowercase();
                        match visit.options.iter_mut().find(|(known, _)| *known == key) {
                            Some((_, value)) => name.clone_into(value),
                            None => visit.options.push((key, name.to_owned())),
                        }
                    }
                }
                (_, Target::Button) => visit.page = Page::Item,
            },
        }
        Ok(Effect::Moved)
    }

    fn results(&mut self, number: usize) -> Result<(), EnvError> {
        self.visit.page = Page::Results;
        self.visit.number = number;
        self.visit.product = None;
        self.visit.options.clear();
        self.product = None;
        self.show_results()
    }

    fn show_results(&mut self) -> Result<(), EnvError> {
        self.shown.clear();
        let start = self.visit.number.saturating_sub(1) * PAGE_SIZE;
        for index in self.hits.iter().skip(start).take(PAGE_SIZE) {
            self.shown.push((*index, self.shop.catalogue().product(*index)?));
        }
        Ok(())
    }

    /// Returns the open page.
    ///
    /// # Errors
    /// Fails if [`Session::close`] was called without an open product.
    pub fn view(&self) -> Result<PageView<'_>, EnvError> {
        let mut view = PageView::default();
        match (self.visit.page, self.product.as_deref()) {
            (Page::Index, _) => {
                view.has_search_bar = true;
                for text in ["WebShop", "Instruction: ", &self.instruction] {
                    view.plain(text);
                }
                view.button("Search", "search");
            }
            (Page::Results, _) => self.view_results(&mut view),
            (Page::Item, Some(product)) => self.view_item(&mut view, product),
            (Page::Sub(page), Some(product)) => self.view_sub(&mut view, page, product),
            (Page::Done, Some(product)) => self.view_done(&mut view, product),
            (Page::Item | Page::Sub(_) | Page::Done, None) => {
                return Err(EnvError::Other("a product's page is open without a product".to_owned()));
            }
        }
        Ok(view)
    }

    fn head<'a>(&'a self, view: &mut PageView<'a>) {
        view.plain("Instruction:");
        view.plain(self.instruction.as_str());
        view.button("Back to Search", "back to search");
    }

    fn view_results<'a>(&'a self, view: &mut PageView<'a>) {
        self.head(view);
        view.plain(format!("Page {} (Total results: {})", self.visit.number, self.hits.len()));
        if self.visit.number > 1 {
            view.button("< Prev", "< prev");
        }
        view.button("Next >", "next >");
        for (entry, (index, product)) in self.shown.iter().enumerate() {
            view.link(product.asin.as_str().into(), entry, self.visit.visited.contains(index));
            view.plain(product.title.as_str());
            view.plain(price_tag(product));
        }
    }

    fn view_item<'a>(&'a self, view: &mut PageView<'a>, product: &'a Product) {
        self.head(view);
        view.button("< Prev", "< prev");
        // The original searches the page's URL for chosen values.
        let address = format!(
            "{} {}",
            self.visit.query.as_deref().unwrap_or_default(),
            dumps(self.visit.options.iter())
        );
        let mut quoted = String::new();
        for option in &product.options {
            view.plain(option.name.as_str());
            for value in &option.values {
                quoted.clear();
                quoted.push('"');
                quoted.push_str(value);
                quoted.push('"');
                view.push(PartKind::Option { chosen: address.contains(&quoted) }, value.as_str());
            }
        }
        view.plain(product.title.as_str());
        view.plain(format!("Price: {}", price_tag(product)));
        view.plain("Rating: N.A.");
        view.button("Description", "description");
        view.button("Features", "features");
        view.button("Reviews", "reviews");
        if self.shop.shows_attributes() {
            view.button("Attributes", "attributes");
        }
        view.button("Buy Now", "buy now");
        let groups = product.options.iter().enumerate();
        view.choices(
            groups.flat_map(|(group, option)| option.values.iter().map(move |value| (group, value.as_str()))),
        );
    }

    fn view_sub<'a>(&'a self, view: &mut PageView<'a>, page: SubPage, product: &'a Product) {
        self.head(view);
        view.button("< Prev", "< prev");
        match page {
            SubPage::Description => view.plain(product.description.as_str()),
            SubPage::Features => {
                for bullet in &product.bullet_points {
                    view.plain(format!(" {bullet}"));
                }
            }
            SubPage::Reviews => {}
            SubPage::Attributes => {
                for attribute in &product.attributes {
                    view.plain(format!(" {attribute}"));
                }
                for text in [&product.category, &product.query, &product.product_category] {
                    view.plain(text.as_str());
                }
            }
        }
    }

    /// Renders the page after a purchase, including the original's hidden parts and its
    /// misspelling.
    fn view_done<'a>(&'a self, view: &mut PageView<'a>, product: &'a Product) {
        for text in [
            "Thank you for shopping with us!",
            "Your code: ",
            "None",
            " (Paste it in your MTurk interface.)",
            "Purchased",
            "asin",
            &product.asin,
            "options",
        ] {
            view.plain(text);
        }
        view.plain(options_json(&self.visit.options));
        for text in ["attrs", "None", "category", "None", "query", "None", "product category", "None"] {
            view.plain(text);
        }
        view.plain("Target");
        for text in ["asin", "options", "attrs", "price upper", "instuction text", "category"] {
            view.plain(text);
        }
        for text in ["product category", "query", "Goal ", "None", "Reward", "Your score (min 0.0, max 1.0)"]
        {
            view.plain(text);
        }
        view.plain(float(self.score));
        view.plain("Reward Details ");
        view.plain("None");
    }
}

/// Formats a product's price as it is shown on pages.
pub(crate) fn price_tag(product: &Product) -> String {
    match product.pricing.as_slice() {
        [] => "$100.0".to_owned(),
        [price] => format!("${}", float(*price)),
        [low, high, ..] => format!("${} to ${}", float(*low), float(*high)),
    }
}
