/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program may not do, each with the name by which tests count it. Some of them a real driver answers with an error
 * too, others are undefined there; README.md says which. Notes are no faults of the program.
 */
#ifndef CNRE_TESTS_STANDIN_FAKECUDA_RULES_H
#define CNRE_TESTS_STANDIN_FAKECUDA_RULES_H

#include <stdint.h>

#define FAKECUDA_RULES(RULE) \
	RULE(OWN_HANDLE, "own-handle", 0)             /* a handle opened in the process that exported it */ \
	RULE(NOT_OPEN, "not-open", 0)                 /* cuIpcCloseMemHandle of what is not open */ \
	RULE(FREE_IMPORTED, "free-imported", 0)       /* cuMemFree of what another process allocated */ \
	RULE(FREE_WHILE_OPEN, "free-while-open", 0)   /* freed by its exporter while others have it open */ \
	RULE(FREE_IN_USE, "free-in-use", 0)           /* freed while another process' streams use it */ \
	RULE(CLOSE_IN_USE, "close-in-use", 0)         /* closed while the own streams use it */ \
	RULE(USE_AFTER_FREE, "use-after-free", 0)     /* or after close, or of an import that its exporter freed */ \
	RULE(BAD_ADDRESS, "bad-address", 0)           /* never was device memory of this process, or reaches past its end */ \
	RULE(UNSYNCHRONISED, "unsynchronised", 0)     /* two accesses, one of them a write, that nothing has ordered */ \
	RULE(NEVER_WRITTEN, "never-written", 0)       /* a read of pages that nothing has written */ \
	RULE(SOURCE_CHANGED, "source-changed", 0)     /* registered memory written before its copy was through */ \
	RULE(UNREGISTER_IN_USE, "unregister-in-use", 0) /* or freed: while a copy from or to it waits */ \
	RULE(HOST_GONE, "host-gone", 0)               /* host memory was unmapped before its copy was through */ \
	RULE(NO_CONTEXT, "no-context", 0)             /* a call that needs a current context, without one */ \
	RULE(DEAD_HANDLE, "dead-handle", 0)           /* a stream, event, module or context that is gone, or never was */ \
	RULE(CALL_IN_HOST_FUNCTION, "call-in-host-function", 0) /* the driver called from what the driver calls */ \
	RULE(CALL_AFTER_FORK, "call-after-fork", 0)   /* in the child of a process that had used it */ \
	RULE(CALL_BEFORE_INIT, "call-before-init", 0) /* without cuInit() */ \
	RULE(WAITED_TOO_LONG, "waited-too-long", 0)   /* FAKECUDA_WAIT_MS for a held stream */ \
	RULE(TABLE_FULL, "table-full", 0)             /* more of something than the stand-in can follow */ \
	RULE(DOUBLE_OPEN, "double-open", 1)           /* counted by the driver, and allowed */ \
	RULE(EXPORTER_GONE, "exporter-gone", 1)       /* a process died whose memory others have open */ \
	RULE(LEFT_OPEN, "left-open", 1)               /* a process ended with handles open */ \
	RULE(PAGEABLE, "pageable", 1)                 /* an asynchronous copy of memory that is not registered */

#define FAKECUDA_RULE_NAME(id, name, is_note) RULE_##id,
enum rule { FAKECUDA_RULES(FAKECUDA_RULE_NAME) RULE_COUNT };
#undef FAKECUDA_RULE_NAME

/* Counted, and written to FAKECUDA_REPORT. Takes no lock: the child of a fork calls it too. */
__attribute__((format(printf, 2, 3))) void rule_broken(enum rule rule, const char *format, ...);

int rule_of(const char *name); /* -1: none */
int rule_is_note(enum rule rule);

#endif
