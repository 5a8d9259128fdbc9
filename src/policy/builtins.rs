//! The runtime configurations that operators can name as `@name`.

use std::collections::BTreeMap;

use super::{Catalogue, Ceilings, PackageManager, Runtime, RuntimeConfig, Source};
use crate::id::Alias;

const PYTHON: &str = "python:3.12-slim";
const NODE: &str = "node:20-slim";

/// One built-in, as the table below has it.
struct Row {
    name: &'static str,
    description: &'static str,
    from: From,
    setup: &'static [&'static str],
    work_dir: &'static str,
}

enum From {
    Image(&'static str),
    Build(&'static str, PackageManager, &'static [&'static str]),
}

use From::{Build, Image};
use PackageManager::{Npm, Pip};

const ROWS: [Row; 15] = [
    Row {
        name: "coding",
        description: "Python with git, ripgrep, fd, jq and uv — the runtime for working on code",
        from: Build(PYTHON, Pip, &[]),
        setup: &[
            "apt-get update && apt-get install -y --no-install-recommends git curl \
             ca-certificates ripgrep fd-find jq less procps && rm -rf /var/lib/apt/lists/* \
             && ln -sf /usr/bin/fdfind /usr/local/bin/fd",
            // A pipe succeeds when only its last part does, hence the last command.
            "curl -LsSf https://astral.sh/uv/install.sh \
             | env UV_INSTALL_DIR=/usr/local/bin UV_NO_MODIFY_PATH=1 sh && uv --version",
        ],
        work_dir: "/workspace",
    },
    Row {
        name: "polyglot",
        description: "Python and Node together, with curl and git — installs more on demand",
        from: Build(PYTHON, Pip, &["numpy", "duckdb", "polars", "httpx"]),
        setup: &[
            "apt-get update && apt-get install -y --no-install-recommends curl ca-certificates \
             git nodejs npm && rm -rf /var/lib/apt/lists/*",
            "npm install -g npm@10",
        ],
        work_dir: "/workspace",
    },
    Row {
        name: "python-minimal",
        description: "Python 3.12, standard library only",
        from: Image(PYTHON),
        setup: &[],
        work_dir: "/workspace",
    },
    Row {
        name: "python-datascience",
        description: "pandas, numpy, matplotlib, scikit-learn, seaborn — needs room",
        from: Build(
            PYTHON,
            Pip,
            &["pandas", "numpy", "matplotlib", "scikit-learn", "seaborn"],
        ),
        setup: &[],
        work_dir: "/workspace",
    },
    Row {
        name: "python-analytics",
        description: "DuckDB and Polars — same work in a third of the memory",
        from: Build(PYTHON, Pip, &["duckdb", "polars", "pyarrow"]),
        setup: &[],
        work_dir: "/workspace",
    },
    Row {
        name: "python-web",
        description: "FastAPI, Uvicorn, SQLAlchemy, httpx",
        from: Build(PYTHON, Pip, &["fastapi", "uvicorn", "sqlalchemy", "httpx"]),
        setup: &[],
        work_dir: "/workspace",
    },
    Row {
        name: "python-scraping",
        description: "httpx, BeautifulSoup, lxml and markdownify for fetching pages",
        from: Build(
            PYTHON,
            Pip,
            &["httpx", "beautifulsoup4", "lxml", "markdownify"],
        ),
        setup: &[],
        work_dir: "/workspace",
    },
    Row {
        name: "python-documents",
        description: "pypdf, python-docx, openpyxl and Pillow for document work",
        from: Build(PYTHON, Pip, &["pypdf", "python-docx", "openpyxl", "pillow"]),
        setup: &[],
        work_dir: "/workspace",
    },
    Row {
        name: "node-minimal",
        description: "Node.js 20, no extra packages",
        from: Image(NODE),
        setup: &[],
        work_dir: "/app",
    },
    Row {
        name: "node-typescript",
        description: "TypeScript with tsx and Vitest",
        from: Build(NODE, Npm, &["typescript", "tsx", "vitest"]),
        setup: &[],
        work_dir: "/app",
    },
    Row {
        name: "node-react",
        description: "TypeScript, Vite and React",
        from: Build(
            NODE,
            Npm,
            &["typescript", "vite", "react", "react-dom", "@types/react"],
        ),
        setup: &[],
        work_dir: "/app",
    },
    Row {
        name: "bun",
        description: "Bun, with its own bundler, test runner and package manager",
        from: Image("oven/bun:1-slim"),
        setup: &[],
        work_dir: "/app",
    },
    Row {
        name: "deno",
        description: "Deno, TypeScript-first with no install step",
        from: Image("denoland/deno:alpine"),
        setup: &[],
        work_dir: "/app",
    },
    Row {
        name: "go",
        description: "Go toolchain",
        from: Image("golang:1.23-alpine"),
        setup: &[],
        work_dir: "/src",
    },
    Row {
        name: "rust",
        description: "Rust toolchain with cargo",
        from: Image("rust:1-slim"),
        setup: &[],
        work_dir: "/src",
    },
];

/// Returns the names of all built-ins, in the order in which they are documented.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Returns the built-in of a name.
pub fn get(name: &str) -> Option<RuntimeConfig> {
    ROWS.iter().find(|row| row.name == name).map(configuration)
}

/// Returns the allowlist of an operator who wrote none; `coding` is the default.
pub fn default_catalogue() -> Catalogue {
    let image = |image: &str, description: &str| Runtime {
        source: Source::Image(image.to_owned()),
        description: description.to_owned(),
        ceilings: Ceilings::default(),
        keep_awake: crate::policy::KeepAwake::No,
        users: crate::policy::Users::Own,
    };
    let coding = Runtime {
        source: Source::Config(Box::new(
            get("coding").expect("coding is one of the built-ins"),
        )),
        description: String::new(),
        ceilings: Ceilings {
            network_mode: Some("bridge".to_owned()),
            ..Ceilings::default()
        },
        keep_awake: crate::policy::KeepAwake::No,
        users: crate::policy::Users::Own,
    };
    let alias = |text: &str| Alias::parse(text).expect("a shipped alias is not empty");
    let runtimes = BTreeMap::from([
        (alias("coding"), coding),
        (
            alias("python"),
            image(PYTHON, "Python 3.12, standard library only"),
        ),
        (alias("node"), image(NODE, "Node.js 20, no extra packages")),
    ]);
    Catalogue::new(runtimes, alias("coding")).expect("the default is one of the three")
}

fn configuration(row: &Row) -> RuntimeConfig {
    let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    let (image, base_image, package_manager, packages) = match row.from {
        Image(image) => (Some(image), None, Pip, &[][..]),
        Build(base, manager, packages) => (None, Some(base), manager, packages),
    };
    RuntimeConfig {
        name: row.name.to_owned(),
        description: row.description.to_owned(),
        image: image.map(str::to_owned),
        base_image: base_image.map(str::to_owned),
        packages: owned(packages),
        package_manager,
        setup_commands: owned(row.setup),
        env_vars: BTreeMap::new(),
        work_dir: row.work_dir.to_owned(),
        cache_image: true,
        run_as_uid: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::recipe;
    use super::*;

    #[test]
    fn every_built_in_can_be_built_or_is_ready() {
        assert_eq!(names().count(), 15);
        for name in names() {
            let config = get(name).unwrap();
            assert_eq!(recipe::check(&config), Ok(()), "{name}");
            assert_eq!(config.name, name);
        }
        assert!(get("nosuch").is_none());
    }

    #[test]
    fn six_built_ins_are_ready_images() {
        let ready: Vec<&str> = names()
            .filter(|name| get(name).unwrap().image.is_some())
            .collect();
        assert_eq!(
            ready,
            [
                "python-minimal",
                "node-minimal",
                "bun",
                "deno",
                "go",
                "rust"
            ]
        );
    }

    #[test]
    fn the_shipped_allowlist_starts_with_coding() {
        let catalogue = default_catalogue();
        assert_eq!(catalogue.default_alias().as_str(), "coding");
        assert_eq!(catalogue.aliases(), "coding, node, python");
    }
}
