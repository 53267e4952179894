// Opens something again and again until it is left: consoles come back by themselves after a restart.

const FIRST = 500;
const LONGEST = 4000;

export class Again {
  private wait = FIRST;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private left = false;

  constructor(private readonly open: () => void) {}

  /** It came to be. */
  opened() {
    this.wait = FIRST;
  }

  /** It ended, or could not be opened. */
  ended() {
    if (this.left || this.timer !== undefined) return;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.open();
    }, this.wait);
    this.wait = Math.min(this.wait * 2, LONGEST);
  }

  /** There is reason to believe that it would open now. */
  now() {
    if (this.left || this.timer === undefined) return;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.wait = FIRST;
    this.open();
  }

  leave() {
    this.left = true;
    clearTimeout(this.timer);
  }
}
