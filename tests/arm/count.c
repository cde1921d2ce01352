// A plugin for QEMU's user emulation that counts executed instructions by function: "COUNT NAME", a line each.
//
// Debian has no header for plugins; below is what is used of version 1 of the interface.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum operation { ADD };
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*done)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, enum operation op, void *to, uint64_t add);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*done)(plugin_id, void *), void *data);
void qemu_plugin_outs(const char *text);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static struct function {
    char *name;
    uint64_t count;
} *functions[1 << 16];

// The function of a name, or of all that have no place any more.
static struct function *function(const char *name) {
    static struct function others = {"others", 0};
    size_t hash = 5381, most = sizeof functions / sizeof *functions;
    for (const char *c = name; *c; c++) hash = hash * 33 + (unsigned char)*c;
    for (size_t i = 0; i < 64; i++) {
        struct function **at = &functions[(hash + i) % most];
        if (*at && strcmp((*at)->name, name) == 0) return *at;
        if (!*at) {
            *at = calloc(1, sizeof **at);
            if (*at) (*at)->name = strdup(name);
            return *at && (*at)->name ? *at : (*at = NULL, &others);
        }
    }
    return &others;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb) {
    const char *name = qemu_plugin_insn_symbol(qemu_plugin_tb_get_insn(tb, 0));
    struct function *of = function(name && *name ? name : "unknown");
    qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD, &of->count, qemu_plugin_tb_n_insns(tb));
}

static void ended(plugin_id id, void *data) {
    char line[1024];
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (!functions[i]) continue;
        snprintf(line, sizeof line, "%" PRIu64 " %s\n", functions[i]->count, functions[i]->name);
        qemu_plugin_outs(line);
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
