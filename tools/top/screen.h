/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal: the only file that knows ncurses. */
#ifndef CNRE_TOOLS_TOP_SCREEN_H
#define CNRE_TOOLS_TOP_SCREEN_H

#include "tools/top/grid.h"

#define SCREEN_NO_KEY (-1)

/* 0, or -ENOTTY: standard input or output is no terminal that is known. */
int screen_open(int no_color);
void screen_close(void);              /* the terminal is as it was before */
void screen_size(int *ret_rows, int *ret_columns);
void screen_show(const struct grid *grid);
/* A character or enum ui_key, within the time; SCREEN_NO_KEY: none, or the terminal has another size now. */
int screen_key(int timeout_ms);

#endif
