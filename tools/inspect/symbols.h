/* SPDX-License-Identifier: Apache-2.0 */
/* Names for addresses of a process: its memory map says the file, the file's symbols the function. */
#ifndef CNRE_TOOLS_INSPECT_SYMBOLS_H
#define CNRE_TOOLS_INSPECT_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#define SYMBOLS_FILES_MAX 64u             /* kept open */
#define SYMBOLS_TEXT_BYTES 192u

struct symbols;

int symbols_open(struct symbols **ret_symbols); /* 0 or -ENOMEM */
struct symbols *symbols_close(struct symbols *symbols);

/* "cnre_acquire+0x1f (libcnre.so.0)", or an offset in the file. 0, or -ENOENT: no code of a file is there. */
int symbols_name(struct symbols *symbols, uint32_t process, uint64_t address, char text[SYMBOLS_TEXT_BYTES]);

#endif
