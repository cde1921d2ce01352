//! The report as one page: nothing in it is fetched, nothing in it runs.

use super::content::Report;
use std::fmt::{Display, Write};

/// Slowest models that are listed.
const SLOWEST: usize = 20;

const STYLE: &str = "body{font:14px/1.45 sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}
td.n{text-align:right}th{background:#f2f2f2}tr.bad td{background:#fde8e8}code{font-size:12px}
.verdict{font-size:1.3em;font-weight:bold}.bad{color:#a00}.good{color:#070}";

/// The whole page.
pub fn page(report: &Report) -> String {
    let mut page = Page::default();
    let good = report.failed == 0 && report.losses.is_empty() && report.not_run == 0;
    let verdict = format!("{} passed, {} failed, {} skipped", report.passed, report.failed, report.skipped);
    page.raw(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>NNAPI driver conformance</title>\
         <style>{STYLE}</style></head>\n<body><h1>NNAPI driver conformance</h1>\n\
         <p class=\"verdict {}\">{}</p>\n",
        if good { "good" } else { "bad" },
        escape(&verdict)
    ));
    head(&mut page, report);
    losses(&mut page, report);
    failures(&mut page, report);
    suites(&mut page, report);
    operations(&mut page, report);
    skips(&mut page, report);
    slowest(&mut page, report);
    capabilities(&mut page, report);
    page.raw("</body></html>\n");
    page.0
}

fn head(page: &mut Page, report: &Report) {
    page.table(&["", ""], |page| {
        let mut row = |what: &str, value: &dyn Display| page.row(false, &[what, &value.to_string()]);
        if let Some(driver) = report.driver {
            row("driver", &driver.version);
            row("interface", &format!("{} ({})", driver.interface, driver.interface_hash));
            row("type", &driver.ty);
            row("cache files", &driver.cache_files());
            row("extensions", &driver.extensions());
        }
        row("reached by", &report.service);
        row("tested by", &report.tool);
        row("when", &format!("{} s after 1970", report.when));
        row("took", &format!("{:.1} s with {} client threads", report.seconds, report.client_threads));
        row("executed by", &report.paths.join(", "));
        for left_out in report.left_out {
            row("left out", left_out);
        }
        if report.not_run > 0 {
            row("not run", &format!("{} models: the driver did not come back", report.not_run));
        }
    });
}

fn losses(page: &mut Page, report: &Report) {
    if report.losses.is_empty() {
        return;
    }
    page.heading("The driver died or hung");
    page.table(&["what", "while running", "back after"], |page| {
        for loss in report.losses {
            let back = loss.back_after_seconds.map_or("never".into(), |time| format!("{time:.1} s"));
            page.row(true, &[&loss.why, &loss.doing, &back]);
        }
    });
}

fn failures(page: &mut Page, report: &Report) {
    let failed: Vec<_> = report.results.iter().filter(|line| line.outcome == "failed").collect();
    if failed.is_empty() {
        return;
    }
    page.heading("Failures");
    page.raw("<p>Each directory has the model, its inputs, expected and actual outputs, and <code>repeat.sh</code>.</p>\n");
    page.table(&["suite", "model", "why", "laid out in"], |page| {
        for line in failed {
            let reason = line.reason.as_deref().unwrap_or_default();
            let link = line.directory.as_deref().map_or(String::new(), |directory| {
                format!("<a href=\"{0}/why.txt\"><code>{0}</code></a>", escape(directory))
            });
            page.raw(format_args!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{link}</td></tr>\n",
                escape(line.suite),
                escape(&line.model),
                escape(reason)
            ));
        }
    });
}

fn suites(page: &mut Page, report: &Report) {
    page.heading("Suites");
    page.table(&["suite", "passed", "failed", "skipped", "seconds", "executions"], |page| {
        for (suite, counts) in &report.suites {
            let executions: Vec<_> =
                counts.executions.iter().map(|(path, count)| format!("{path} {count}")).collect();
            page.counts(
                &[suite],
                [counts.passed, counts.failed, counts.skipped],
                counts.seconds,
                &executions.join(", "),
            );
        }
    });
}

fn operations(page: &mut Page, report: &Report) {
    page.heading("Operations");
    page.table(
        &["operation", "type of its first input", "passed", "failed", "skipped", "seconds", ""],
        |page| {
            for row in &report.operations {
                page.counts(&[row.operation, row.ty], [row.passed, row.failed, row.skipped], row.seconds, "");
            }
        },
    );
}

fn skips(page: &mut Page, report: &Report) {
    if report.skips.is_empty() && report.missing_operations.is_empty() {
        return;
    }
    page.heading("Skipped");
    page.table(&["why", "models"], |page| {
        for (operation, count) in report.missing_operations {
            page.row(
                false,
                &[&format!("the driver does not take this use of {operation}"), &count.to_string()],
            );
        }
        for (why, count) in report.skips {
            page.row(false, &[why, &count.to_string()]);
        }
    });
}

fn slowest(page: &mut Page, report: &Report) {
    let mut lines: Vec<_> = report.results.iter().collect();
    lines.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    page.heading("Slowest");
    page.table(&["suite", "model", "ms"], |page| {
        for line in lines.into_iter().take(SLOWEST) {
            page.row(false, &[line.suite, &line.model, &format!("{:.1}", line.ms)]);
        }
    });
}

fn capabilities(page: &mut Page, report: &Report) {
    let Some(driver) = report.driver else { return };
    page.heading("Capabilities, relative to the processor (less is better)");
    page.table(&["what", "time", "power"], |page| {
        for row in &driver.performance {
            page.row(false, &[&row.what, &row.time.to_string(), &row.power.to_string()]);
        }
    });
}

/// HTML in the making. Writing to a string cannot fail.
#[derive(Default)]
struct Page(String);

impl Page {
    fn raw(&mut self, html: impl Display) {
        let _ = write!(self.0, "{html}");
    }

    fn heading(&mut self, text: &str) {
        self.raw(format_args!("<h2>{}</h2>\n", escape(text)));
    }

    fn table(&mut self, head: &[&str], rows: impl FnOnce(&mut Page)) {
        self.raw("<table>");
        if head.iter().any(|cell| !cell.is_empty()) {
            let cells: String = head.iter().map(|cell| format!("<th>{}</th>", escape(cell))).collect();
            self.raw(format_args!("<tr>{cells}</tr>\n"));
        }
        rows(self);
        self.raw("</table>\n");
    }

    fn row(&mut self, bad: bool, cells: &[&str]) {
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        self.raw(format_args!("<tr{}>{cells}</tr>\n", if bad { " class=\"bad\"" } else { "" }));
    }

    /// A row with counts, red if something failed.
    fn counts(&mut self, names: &[&str], [passed, failed, skipped]: [usize; 3], seconds: f64, more: &str) {
        let seconds = format!("{seconds:.1}");
        let (passed, failed, skipped) = (passed.to_string(), failed.to_string(), skipped.to_string());
        let mut cells = names.to_vec();
        cells.extend([passed.as_str(), &failed, &skipped, &seconds, more]);
        self.row(failed != "0", &cells);
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
