"""Options of feature extraction. Names and defaults (except dither's) are Kaldi's, so that its conf files can
be used. Options that matter only with an energy column are named in `of_energy`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.option_uses import if_set
from pyasr.base.cli.options import group, load, option
from pyasr.base.errors import UserError
from pyasr.feats.feature_kind import option_classes

OPTIONS_FILE = "options.json"


@dataclass(frozen=True)
class FrameOptions:
    """Division of the waveform into windowed frames."""

    heading = "features"

    sample_frequency: float = option(
        16000.0, "samples per second of the audio", minimum=1000.0, maximum=1e6, common=True
    )
    frame_length: float = option(25.0, "length of a frame in ms", minimum=1.0, maximum=10000.0, common=True)
    frame_shift: float = option(10.0, "shift from one frame to the next in ms", minimum=1.0, common=True)
    dither: float = option(
        0.0,
        "standard deviation of the noise added to the samples (int16 scale); 0: none",
        minimum=0.0,
        rare=True,
    )
    preemphasis_coefficient: float = option(
        0.97, "coefficient c of the preemphasis x[i] - c x[i-1]", minimum=0.0, maximum=1.0, rare=True
    )
    remove_dc_offset: bool = option(True, "subtract the mean of each frame", rare=True)
    window_type: str = option(
        "povey",
        "window function",
        choices=("povey", "hamming", "hanning", "rectangular", "blackman"),
        rare=True,
    )
    blackman_coeff: float = option(0.42, "constant of the Blackman window", rare=True)
    round_to_power_of_two: bool = option(
        True, "pad frames with zeros to a power of two before the Fourier transform", rare=True
    )
    snip_edges: bool = option(True, "use only frames that are completely within the audio", rare=True)
    raw_energy: bool = option(True, "compute the energy before preemphasis and windowing", rare=True)

    @property
    def window_size(self) -> int:
        """Samples of a frame."""
        return int(self.sample_frequency * 0.001 * self.frame_length)

    @property
    def window_shift(self) -> int:
        """Samples between the starts of two frames."""
        return int(self.sample_frequency * 0.001 * self.frame_shift)

    @property
    def shift_s(self) -> float:
        """Seconds between the starts of two frames, rounded to whole samples."""
        return self.window_shift / self.sample_frequency

    @property
    def fft_size(self) -> int:
        """Window size, rounded up to a power of two if `round_to_power_of_two` is set."""
        return 1 << (self.window_size - 1).bit_length() if self.round_to_power_of_two else self.window_size

    @property
    def first_sample(self) -> int:
        """The first sample of the first frame. Without `snip_edges`, it is before the utterance: the middle
        of the frame is half a shift after the beginning."""
        return 0 if self.snip_edges else self.window_shift // 2 - self.window_size // 2

    def num_frames(self, num_samples: int) -> int:
        """Number of frames of an utterance of `num_samples` samples, as in Kaldi."""
        if not self.snip_edges:
            return (num_samples + self.window_shift // 2) // self.window_shift
        return max(0, 1 + (num_samples - self.window_size) // self.window_shift)


@dataclass(frozen=True)
class MelOptions:
    """The triangular filters on the mel scale."""

    heading = "features"

    num_mel_bins: int = option(23, "number of mel filters", minimum=3, common=True)
    low_freq: float = option(20.0, "lower edge of the first filter in Hz", minimum=0.0)
    high_freq: float = option(
        0.0, "upper edge of the last filter in Hz; zero or less: added to half the sample frequency"
    )
    vtln_low: float = option(
        100.0, "lower end of the band in which warping is proportional, in Hz", minimum=0.0, rare=True
    )
    vtln_high: float = option(
        -500.0,
        "upper end of the band in which warping is proportional, in Hz; zero or less: added to "
        "half the sample frequency",
        rare=True,
    )


@dataclass(frozen=True)
class TrackOptions:
    """The search for the fundamental frequency."""

    heading = "pitch"

    min_f0: float = option(50.0, "lowest pitch of the search, in Hz", minimum=1.0, rare=True)
    max_f0: float = option(400.0, "highest pitch of the search, in Hz", minimum=1.0, rare=True)
    soft_min_f0: float = option(
        10.0,
        "pitch in Hz at which the correlation has weight zero; a higher value penalises low pitch more",
        minimum=0.0,
        rare=True,
    )
    penalty_factor: float = option(0.1, "factor on the cost of changes of the pitch", minimum=1e-9, rare=True)
    lowpass_cutoff: float = option(
        1000.0, "cutoff of the low-pass filter before the pitch search, in Hz", minimum=1.0, rare=True
    )
    resample_frequency: int = option(
        4000, "sampling rate of the signal for the pitch search, in Hz", minimum=1, rare=True
    )
    delta_pitch: float = option(0.005, "relative step of the pitch search", minimum=1e-4, rare=True)
    nccf_ballast: float = option(
        7000.0, "ballast that reduces the correlation of quiet frames", minimum=0.0, rare=True
    )
    lowpass_filter_width: int = option(
        1, "number of zeros of the low-pass filter on each side of its peak", minimum=1, rare=True
    )
    upsample_filter_width: int = option(
        5, "number of zeros of the interpolation filter on each side of its peak", minimum=1, rare=True
    )


@dataclass(frozen=True)
class ProcessPitchOptions:
    """Selection and scales of pitch features."""

    heading = "pitch"

    pitch_scale: float = option(2.0, "scale of the normalised log pitch", rare=True)
    pov_scale: float = option(2.0, "scale of the voicing feature", rare=True)
    pov_offset: float = option(0.0, "offset of the voicing feature", rare=True)
    delta_pitch_scale: float = option(10.0, "scale of the slope of the log pitch", rare=True)
    delta_pitch_noise_stddev: float = option(
        0.005,
        "standard deviation of the noise added to the slope before scaling, which hides the steps "
        "of the pitch search",
        minimum=0.0,
        rare=True,
    )
    normalization_left_context: int = option(
        75, "frames of left context for the mean of the log pitch", minimum=0, rare=True
    )
    normalization_right_context: int = option(
        75, "frames of right context for the mean of the log pitch", minimum=0, rare=True
    )
    delay: int = option(
        0,
        "number of frames by which the features are delayed; the first frame is repeated",
        minimum=0,
        rare=True,
    )
    delta_window: int = option(
        2, "number of frames on each side from which the slope is computed", minimum=1, rare=True
    )
    add_pov_feature: bool = option(True, "output the voicing feature", rare=True)
    add_normalized_log_pitch: bool = option(
        True, "output the log pitch minus its mean around the frame", rare=True
    )
    add_delta_pitch: bool = option(True, "output the slope of the log pitch", rare=True)
    add_raw_log_pitch: bool = option(False, "output the log pitch", rare=True)

    @property
    def dim(self) -> int:
        """Number of columns."""
        return (
            self.add_pov_feature
            + self.add_normalized_log_pitch
            + self.add_delta_pitch
            + self.add_raw_log_pitch
        )


@dataclass(frozen=True)
class PitchOptions:
    """Voicing and pitch features in addition to others."""

    heading = "pitch"

    add_pitch: bool = option(False, "append voicing and pitch features")
    track: TrackOptions = group(TrackOptions, only=if_set("add-pitch"))
    process: ProcessPitchOptions = group(ProcessPitchOptions, only=if_set("add-pitch"))


@dataclass(frozen=True)
class UtteranceOptions:
    """Processing of the features of a whole utterance."""

    heading = "features"

    subtract_mean: bool = option(
        False, "subtract the mean of each utterance's features, except pitch features", rare=True
    )


@dataclass(frozen=True)
class MfccOptions:
    """Mel-frequency cepstral coefficients."""

    heading, of_energy = "features", ("energy_floor",)

    frame: FrameOptions = group(FrameOptions)
    mel: MelOptions = group(MelOptions)
    num_ceps: int = option(13, "number of cepstra, C0 included", minimum=1, common=True)
    use_energy: bool = option(True, "replace C0 by the log energy", common=True)
    energy_floor: float = option(0.0, "floor of the energy; 0: no floor", minimum=0.0, rare=True)
    cepstral_lifter: float = option(22.0, "liftering constant; 0: no liftering", minimum=0.0, rare=True)
    htk_compat: bool = option(
        False,
        "put energy or C0 into the last column, as HTK does, with C0 multiplied by the square root of 2",
        rare=True,
    )
    utterance: UtteranceOptions = group(UtteranceOptions)
    pitch: PitchOptions = group(PitchOptions)

    @property
    def dim(self) -> int:
        """Number of columns, without those of pitch."""
        return self.num_ceps


@dataclass(frozen=True)
class FbankOptions:
    """Log mel filter-bank energies."""

    heading, of_energy = "features", ("energy_floor", "htk_compat")

    frame: FrameOptions = group(FrameOptions)
    mel: MelOptions = group(MelOptions)
    use_energy: bool = option(False, "add the log energy as first column", common=True)
    energy_floor: float = option(0.0, "floor of the energy; 0: no floor", minimum=0.0, rare=True)
    use_log_fbank: bool = option(True, "output the logarithms of the filter energies", rare=True)
    use_power: bool = option(
        True, "apply the filters to the power spectrum; false: to the magnitude spectrum", rare=True
    )
    htk_compat: bool = option(False, "put the energy into the last column, as HTK does", rare=True)
    utterance: UtteranceOptions = group(UtteranceOptions)
    pitch: PitchOptions = group(PitchOptions)

    @property
    def dim(self) -> int:
        """Number of columns, without those of pitch."""
        return self.mel.num_mel_bins + self.use_energy


@dataclass(frozen=True)
class PlpOptions:
    """Cepstra of perceptual linear prediction."""

    heading, of_energy = "features", ("energy_floor",)

    frame: FrameOptions = group(FrameOptions)
    mel: MelOptions = group(MelOptions)
    lpc_order: int = option(12, "order of linear prediction", minimum=1, rare=True)
    num_ceps: int = option(13, "number of cepstra, C0 included", minimum=1, common=True)
    use_energy: bool = option(True, "replace C0 by the log energy", common=True)
    energy_floor: float = option(0.0, "floor of the energy; 0: no floor", minimum=0.0, rare=True)
    compress_factor: float = option(
        0.33333, "exponent of the compression of energies", minimum=1e-3, maximum=1.0, rare=True
    )
    cepstral_lifter: float = option(22.0, "liftering constant; 0: no liftering", minimum=0.0, rare=True)
    cepstral_scale: float = option(1.0, "factor on all cepstra", rare=True)
    htk_compat: bool = option(False, "put energy or C0 into the last column, as HTK does", rare=True)
    utterance: UtteranceOptions = group(UtteranceOptions)
    pitch: PitchOptions = group(PitchOptions)

    @property
    def dim(self) -> int:
        """Number of columns, without those of pitch."""
        return self.num_ceps


@dataclass(frozen=True)
class SpectrogramOptions:
    """Logarithms of the power spectrum, with the log energy in place of the first."""

    heading = "features"

    frame: FrameOptions = group(FrameOptions)
    energy_floor: float = option(0.0, "floor of the energy; 0: no floor", minimum=0.0, rare=True)
    utterance: UtteranceOptions = group(UtteranceOptions)
    pitch: PitchOptions = group(PitchOptions)

    @property
    def dim(self) -> int:
        """Number of columns, without those of pitch."""
        return self.frame.fft_size // 2 + 1


def feature_options_file(data: Path, why: str) -> Path:
    """The file with the options of the features of a data directory. Raises UserError, with the reason `why`
    it is needed, if it is missing."""
    path = data / "feats" / OPTIONS_FILE
    if not path.exists():
        raise UserError(f"{path}: no such file, which {why}; compute the features with steps/make_mfcc.py")
    return path


def read_feature_options(data: Path, why: str):
    """The options of the features of a data directory. Raises UserError, with the reason `why` they are
    needed, if they are unknown."""
    return load(feature_options_file(data, why), option_classes())
